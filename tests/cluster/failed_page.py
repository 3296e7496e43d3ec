"""Opens the link of a notice about a failed task in a browser: `failed_page.py CHROMIUM LINK`."""
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

CHROMIUM, LINK = sys.argv[1:]

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    expect.set_options(timeout=60_000)
    page = browser.new_page()
    page.on("pageerror", lambda error: sys.exit(f"an error in a script: {error}"))
    page.goto(LINK)
    opened = page.locator("#fail > article:visible")
    expect(opened.locator("h2")).to_have_text("train")
    expect(opened.locator(".trouble").first).to_contain_text("Raised KeyError('shard-7')")
    # The innermost call is expanded, with its variables.
    expect(opened.locator(".frame[open] tbody tr").filter(has_text="shard").first).to_contain_text("'shard-7'")
    expect(page.locator("#gone")).to_be_hidden()
    expect(page.locator("#fails [data-line]:not(.group)")).to_have_count(2)
    found = Axe().run(page).response["violations"]
    assert not found, found
    browser.close()
