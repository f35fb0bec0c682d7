// Follows Airflow's own switch between light and dark, where the page stands in Airflow's frame.
"use strict";

(() => {
  const shown = () => {
    try {
      const classes = window.parent.document.documentElement.classList;
      return ["dark", "light"].find((name) => classes.contains(name)) ?? null;
    } catch {
      return null; // another origin frames the page, or none: the browser's own setting counts
    }
  };

  const follow = () => {
    const theme = window.parent === window ? null : shown();
    if (theme === null) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("floodmark-theme"));
  };

  follow();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
  if (window.parent === window) return;
  try {
    const watched = window.parent.document.documentElement;
    new MutationObserver(follow).observe(watched, { attributes: true, attributeFilter: ["class"] });
  } catch {
    return;
  }
  // Airflow's pages open in Airflow's window, not within this frame, which may not open any other. The link is clicked
  // there, for from here a sandboxed frame may not take its parent elsewhere.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-out]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const there = window.parent.document.createElement("a");
    there.href = link.href;
    window.parent.document.body.append(there);
    there.click();
    there.remove();
  });
})();
