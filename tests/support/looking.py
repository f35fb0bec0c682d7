"""What a person does and sees in Airflow's UI, with Floodmark's pages in its frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FrameLocator, Locator, Page, expect

PATIENCE = 60_000.0  # milliseconds for what a page shows
WHOLE_RUN = 400_000.0  # milliseconds for a run: a JVM, and what it does
PICTURES = Path(__file__).parents[2] / ".cache" / "screenshots"  # ignored by git, kept by who wants to look
expect.set_options(timeout=PATIENCE)
# The legend's values, once uPlot has drawn where the pointer is: it does so with the next frame.
LEGENDS = """
() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(
  Object.fromEntries([...document.querySelectorAll("[data-chart]")].map((chart) =>
    [chart.dataset.chart, [...chart.querySelectorAll(".u-legend .u-value")].map((value) => value.textContent)]))))))
"""
# How many pixels of a chart have the colour of one of its lines.
INK = """
(chart) => {
  const canvas = chart.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const style = getComputedStyle(document.documentElement);
  const lines = [1, 2, 3].map((line) => style.getPropertyValue(`--line-${line}`).trim());
  const colours = lines.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  let count = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200 && colours.some((rgb) => rgb.every((value, one) => Math.abs(data[at + one] - value) < 8)))
      count += 1;
  return count;
}
"""


class Person:
    """One browser window of somebody's. `said`: what the browser's console called an error, by address."""

    def __init__(self, browser: Browser, address: str, scheme: Any = "light"):
        self.address, self.scheme = address, scheme
        self.context = browser.new_context(
            base_url=address, color_scheme=scheme, viewport={"width": 1400, "height": 1000}, timezone_id="UTC"
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.said: list[tuple[str, str]] = []
        self.page.on("console", lambda told: self._note(told.type == "error", told.location["url"], told.text))
        self.page.on("pageerror", lambda fault: self._note(True, "page", str(fault)))
        self.page.on("dialog", lambda told: self._note(True, "dialog", told.message))

    def _note(self, bad: bool, where: str, text: str) -> None:
        if bad:
            self.said.append((where, text))

    def sign_in(self, user: str, password: str) -> Person:
        self.page.goto("/")
        self.page.get_by_label("Username").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_test_id("nav-sidebar")).to_be_visible(timeout=PATIENCE)
        return self

    def close(self) -> None:
        self.context.close()

    @property
    def frame(self) -> FrameLocator:
        """Floodmark's page in Airflow's."""
        return self.page.frame_locator("iframe")

    def open_rules(self) -> FrameLocator:
        """All rules, by Airflow's navigation."""
        self.page.goto("/")
        self.page.get_by_test_id("nav-sidebar").get_by_role("button", name="Browse").click()
        self.page.get_by_role("menuitem", name="Floodmark").click()
        expect(self.frame.get_by_role("heading", name="Rules", exact=True)).to_be_visible(timeout=PATIENCE)
        return self.frame

    def open_rule(self, name: str) -> FrameLocator:
        """A rule by its line in the list."""
        self.open_rules().get_by_role("link", name=name, exact=True).click()
        expect(self.frame.get_by_role("heading", name=name, exact=True)).to_be_visible(timeout=PATIENCE)
        return self.frame

    def open_tab(self, name: str) -> FrameLocator:
        """A rule by the tab of its DAG."""
        self.page.goto(f"/dags/rule.{name}")
        self.page.get_by_role("link", name="Floodmark", exact=True).click()
        expect(self.frame.get_by_role("heading", name=name, exact=True)).to_be_visible(timeout=PATIENCE)
        return self.frame

    def trigger(self, operation: str = "run", times: Mapping[str, datetime] | None = None) -> str:
        """Fill in the form of the DAG that is shown, and send it; the id of the run."""
        self.page.get_by_test_id("trigger-dag-button").click()
        form = self.page.get_by_test_id("config-form")
        expect(form).to_be_visible(timeout=PATIENCE)
        if operation != "run":
            form.locator("#element_operation").click()
            self.page.get_by_role("option", name=re.compile(f"^{operation}: ")).click()
        if times:
            form.get_by_role("button", name=f"Fields of {operation}").click()
        for name, at in (times or {}).items():
            self._fill_time(form, name, at)
        self.shoot(f"form-{operation}")
        with self.page.expect_response(lambda told: told.request.method == "POST" and "/dagRuns" in told.url) as told:
            self.page.get_by_test_id("trigger-dag-submit").click()
        return str(told.value.json()["dag_run_id"])

    def _fill_time(self, form: Locator, name: str, at: datetime) -> None:
        fields = form.locator("[data-scope=field][data-part=root]")
        given = fields.filter(has=self.page.get_by_text(name, exact=True)).get_by_test_id("datetime-input")
        given.click()
        self.page.get_by_placeholder("YYYY/MM/DD").fill(f"{at:%Y/%m/%d}")
        self.page.get_by_placeholder("HH:mm").fill(f"{at:%H:%M}")
        form.get_by_text(name, exact=True).click()  # elsewhere, so that the calendar goes
        expect(self.page.get_by_placeholder("YYYY/MM/DD")).to_have_count(0)
        expect(given).to_contain_text(f"{at:%b %d, %Y %H:%M}")

    def is_refused(self) -> None:
        """Send the form of the DAG that is shown, and see it refused."""
        self.page.get_by_test_id("trigger-dag-button").click()
        self.page.get_by_test_id("trigger-dag-submit").click()
        expect(self.page.get_by_role("dialog").get_by_test_id("error-alert")).to_contain_text("Forbidden")

    def watch(self, name: str, run: str) -> None:
        """The page of a run until it says that it has ended well."""
        self.page.goto(f"/dags/rule.{name}/runs/{run}")
        expect(self.page.get_by_test_id("header-card").first).to_contain_text("Success", timeout=WHOLE_RUN)
        self.shoot("run")

    def shoot(self, name: str, down_to: Locator | None = None) -> None:
        """A picture of the window, for people; scrolled until this is in view."""
        if down_to is not None:
            down_to.scroll_into_view_if_needed()
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}-{self.scheme}.png")

    def legends(self, chart: str = "rows", step: int = 3) -> list[dict[str, list[str]]]:
        """What all charts' legends say at each point, in its order, as a pointer passes over one of them."""
        over = self.frame.locator(f'[data-chart="{chart}"] .u-over')
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        assert box is not None
        frame = over.element_handle().owner_frame()
        assert frame is not None
        found: list[dict[str, list[str]]] = []
        for x in range(1, int(box["width"]), step):
            self.page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
            values = frame.evaluate(LEGENDS)
            if not found or found[-1] != values:
                found.append(values)
        return found

    def ink(self, chart: str) -> int:
        """How many pixels a chart's lines have."""
        return int(self.frame.locator(f'[data-chart="{chart}"]').evaluate(INK))


def cells(table: Locator) -> list[list[str]]:
    """The texts of a table's body, line by line."""
    return [line.locator("th, td").all_inner_texts() for line in table.locator("tbody tr").all()]
