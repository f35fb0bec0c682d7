// Finds rules in the list by any word of their lines.
"use strict";

(() => {
  const input = document.getElementById("find");
  if (input === null) return;
  const lines = [...document.querySelectorAll("#rules tbody tr")];
  const told = document.getElementById("found");
  input.parentElement.hidden = false;
  input.value = new URLSearchParams(location.search).get("find") ?? "";

  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const line of lines) {
      const text = line.textContent.toLowerCase();
      line.hidden = !words.every((word) => text.includes(word));
      if (!line.hidden) count += 1;
    }
    told.textContent = words.length ? `${count} of ${lines.length}` : "";
    const address = new URL(location);
    if (words.length) address.searchParams.set("find", input.value);
    else address.searchParams.delete("find");
    history.replaceState(null, "", address);
  };

  input.addEventListener("input", find);
  if (input.value) find();
})();
