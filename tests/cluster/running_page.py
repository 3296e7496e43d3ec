"""Stops a running task in a browser, and detaches: `running_page.py CHROMIUM URL`."""
import sys

from playwright.sync_api import expect, sync_playwright

CHROMIUM, URL = sys.argv[1:]

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    expect.set_options(timeout=60_000)
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: sys.exit(f"an error in a script: {error}"))
    page.goto(URL)
    page.get_by_role("tab", name="Running tasks").click()
    page.locator("#filter-runs").fill("spin")
    row = page.locator("#runs [data-line]:not(.group)")
    notice = page.locator("#runs-told")
    for _ in range(5):
        expect(notice).not_to_have_text("Asking …")
        if row.count() == 1:
            break
        # A busy head may fail to answer once.
        page.locator("#ask-runs").click()
    expect(row).to_have_count(1)
    row.click()
    opened = page.locator("#run > article:visible")
    expect(opened.locator(".told")).to_contain_text("It runs on")
    opened.get_by_role("button", name="Stop and debug").click()
    log = opened.get_by_role("log")
    expect(log).to_contain_text("(Pdb)")
    page.keyboard.type("p steps > 0")
    page.keyboard.press("Enter")
    expect(log).to_contain_text("True")
    page.keyboard.type("quit")
    page.keyboard.press("Enter")
    expect(log).to_contain_text("[the terminal is closed]")
    said = log.inner_text()
    assert "runs on without a debugger" in said and "lost" not in said, said
    browser.close()
