"""Opens the link of a notice about a job that hangs in a browser: `why_page.py CHROMIUM LINK`. Its rank 2 sleeps."""
import re
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
    opened = page.locator("#run > article:visible")
    expect(opened.locator(".verdict .pill")).to_have_text("hangs")
    expect(opened.locator(".verdict")).to_contain_text("Rank 2 of Trainer holds the others up")
    expect(opened.locator("li").first).to_contain_text("sleeps in sleeps (")
    found = Axe().run(page).response["violations"]
    assert not found, found
    # The same from the list of what runs.
    job = re.search("why=([^&]*)", LINK)[1]
    page.get_by_label("Filter", exact=True).locator("visible=true").fill(job)
    page.locator("#runs .group").filter(has_text="Trainer").get_by_role("button", name="Why?").click()
    expect(opened.locator("h2")).to_have_text(f"Job {job}")
    expect(opened.locator(".verdict .pill")).to_have_text("hangs")
    browser.close()
