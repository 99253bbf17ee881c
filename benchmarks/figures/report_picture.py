"""The picture of the report in the README: the top of report.html of a real run, light and dark, by Chromium.

longtail train plants --time 3m
python -m benchmarks.figures.report_picture runs/plants-1
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.record import ROOT

# Narrow, so that its letters are read on a phone.
WIDTH, HEIGHT, SCALE = 520, 618, 2


def report_picture(report: Path, folder: Path) -> list[Path]:
    """Write report-light.png and report-dark.png to `folder`."""
    chromium = shutil.which("chromium")
    written = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT},
                device_scale_factor=SCALE,
                color_scheme="light" if scheme == "light" else "dark",
            )
            page.goto(report.resolve().as_uri())
            written.append(folder / f"report-{scheme}.png")
            page.screenshot(path=written[-1])
        browser.close()
    return written


def main() -> None:
    """Take the pictures of one run."""
    parser = argparse.ArgumentParser(description="Take the pictures of a report.")
    parser.add_argument("run", type=Path, help="the folder of a run")
    arguments = parser.parse_args()
    for path in report_picture(arguments.run / "report.html", ROOT / "docs" / "figures"):
        print(path)


if __name__ == "__main__":
    main()
