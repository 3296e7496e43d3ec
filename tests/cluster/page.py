"""A user with a browser on the relay's page: `page.py CHROMIUM URL SHOTS`, and on standard input one line of JSON with tokens.

Says on standard output what the test has to do next, a word a line, and goes on when it is answered a line. Pictures are
left in the folder SHOTS.
"""
import json
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

CHROMIUM, URL, SHOTS = sys.argv[1:]
TOKENS = json.loads(sys.stdin.readline())
PATIENCE = 60_000


def do(word):
    print(word, flush=True)
    assert sys.stdin.readline(), "the test has gone"


def accessible(page, what):
    found = Axe().run(page).response["violations"]
    told = [(v["id"], [n["html"][:200] + n["failureSummary"][:300] for n in v["nodes"]]) for v in found]
    assert not told, (what, told)


def signed_in(browser, who, **options):
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: sys.exit(f"an error in a script: {error}"))
    # The console reports violations of the page's own content security policy.
    page.on("console", lambda told: "Content Security Policy" in told.text and sys.exit(told.text))
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.asked = asked
    page.goto(URL)
    page.get_by_label("Token").wait_for()
    if who == "ann":
        accessible(page, "signing in")
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#why")).to_contain_text("not taken")
    page.get_by_label("Token").fill(TOKENS[who])
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#who")).to_contain_text(who)
    return page


ROWS = "#stops [data-line]:not(.group)"


def opened(page, at):
    """Opens the task at this position of the list by keyboard."""
    row = page.locator(ROWS).nth(at)
    row.focus()
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-current", "true")
    item = page.locator("#task > article:visible")
    expect(item.locator("h2")).to_be_focused()
    return item


def listed(page, count, **options):
    expect(page.locator("#count")).to_have_text(str(count), **options)
    expect(page.locator(ROWS)).to_have_count(count)


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    expect.set_options(timeout=PATIENCE)

    # The list loads without a reload.
    ann = signed_in(browser, "ann")
    expect(ann.locator("#none")).to_contain_text("No task is paused.")
    do("start")
    listed(ann, 3, timeout=180_000)
    assert ann.title() == "(3) ray-relay", ann.title()
    # The job of a row may arrive a moment later.
    expect(ann.locator("#stops .group .name")).to_contain_text(["Job "])
    expect(ann.locator("#stops .group .name")).to_have_count(1)
    expect(ann.locator(f"{ROWS} .name").first).to_have_text("square")
    # The test's tasks request their node, and no CPU.
    expect(ann.locator(f"{ROWS} .holds").first).to_have_text("0.001 head")
    # The first task is open, without a request to its debugger.
    expect(ann.locator("#task h2")).to_contain_text("square")
    expect(ann.locator("#task .told")).to_contain_text("has not been asked")
    assert not any(address.endswith("/v1/snapshot") for address in ann.asked), ann.asked
    accessible(ann, "the list")
    ann.screenshot(path=f"{SHOTS}/page-real-list.png")

    # Running tasks are fetched from Ray on demand. These are at a breakpoint, and link to it.
    ann.get_by_role("tab", name="Running tasks").click()
    ann.locator("#filter-runs").fill("square")
    running = ann.locator("#runs [data-line]:not(.group)")
    expect(running).to_have_count(3)
    expect(running.locator(".pill").first).to_have_text("paused")
    accessible(ann, "what runs")
    ann.screenshot(path=f"{SHOTS}/page-real-running.png")
    running.first.click()
    expect(ann.locator("#running")).to_be_hidden()
    expect(ann.locator("#task > article:visible mark")).to_contain_text("breakpoint()")

    # Failures are not kept here, and the page says so.
    ann.get_by_role("tab", name="Failed tasks").click()
    expect(ann.locator("#fails-told")).to_contain_text("keeps nothing of tasks that fail")
    accessible(ann, "what has failed")
    ann.get_by_role("tab", name="Paused tasks").click()

    # With `list` only, the page shows nothing else, and the API permits nothing else.
    lena = signed_in(browser, "lena", color_scheme="dark", viewport={"width": 390, "height": 800})
    listed(lena, 3)
    item = opened(lena, 0)
    expect(item.locator(".told")).to_have_text("With your permissions there is nothing to do here.")
    assert item.locator(".buttons button").count() == 0, item.inner_text()
    item.locator(".ids > summary").click()
    row = item.locator("dd code").first.inner_text()
    had = lena.evaluate(
        """async ([id, token]) => {
            const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
            const post = (path, body) => fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
            const looked = await post('v1/snapshot', { id });
            const released = await post('v1/release', { ids: [id] });
            const opened = await new Promise((resolve) => {
                const address = new URL('v1/terminal', document.baseURI.replace('http', 'ws'));
                const socket = new WebSocket(address, ['ray-relay.terminal.v1', `ray-relay.bearer.${token}`]);
                socket.onopen = () => resolve(true);
                socket.onerror = () => resolve(false);
            });
            return [looked.status, released.status, opened];
        }""",
        [row, TOKENS["lena"]],
    )
    assert had == [403, 403, False], had
    accessible(lena, "list alone")
    lena.screenshot(path=f"{SHOTS}/page-real-phone.png")

    # With `view` the snapshot is shown, and the task stays paused.
    vera = signed_in(browser, "vera", color_scheme="dark")
    item = opened(vera, 0)
    expect(item.locator("mark")).to_contain_text("breakpoint()")
    expect(item.locator(".frame").first.locator("tbody tr").filter(has_text="y")).to_contain_text("int")
    assert item.get_by_role("button", name="Prompt").count() == 0
    assert vera.get_by_role("button", name="Continue").count() == 0
    expect(vera.locator(f"{ROWS} .pill").first).to_have_text("paused")
    item.get_by_role("button", name="Source and variables").click()
    expect(item.locator(".told")).to_contain_text("As it stood")
    accessible(vera, "a snapshot")
    vera.screenshot(path=f"{SHOTS}/page-real-snapshot.png", full_page=True)
    expect(item.get_by_role("link", name="In an editor")).to_have_attribute("href", "docs/editors")

    # All three side by side: the same function, with other callers or values.
    item = vera.locator("#task > article:visible")
    vera.get_by_role("button", name="Compare").first.click()
    expect(item.locator(".told")).to_contain_text("3 as they stood")
    expect(item.locator(".tree").first).to_contain_text("square ×3")
    expect(item.locator(".frame table").first).to_contain_text("y")
    accessible(vera, "a comparison")
    vera.screenshot(path=f"{SHOTS}/page-real-compare.png", full_page=True)
    vera.context.close()

    # The head is down, and comes back.
    do("cut")
    expect(ann.locator("#troubles")).to_contain_text("ago")
    expect(ann.locator(f"{ROWS}.old")).to_have_count(3)
    accessible(ann, "no head")
    ann.screenshot(path=f"{SHOTS}/page-real-down.png")
    do("mend")
    expect(ann.locator(f"{ROWS}.old")).to_have_count(0)
    expect(ann.locator("#troubles p")).to_have_count(0)

    # In a terminal, a variable is changed and the task resumes with it.
    item = opened(ann, 0)
    item.get_by_role("button", name="Prompt").click()
    log = item.get_by_role("log")
    expect(log).to_contain_text("(Pdb)")
    accessible(ann, "a terminal")
    for line in ["p y", "y = -7"]:
        ann.keyboard.type(line)
        ann.keyboard.press("Enter")
        expect(log).to_contain_text(line)
    ann.keyboard.type("p y")
    ann.keyboard.press("Enter")
    expect(log).to_contain_text("-7\n")
    expect(lena.locator(ROWS).filter(has_text="ann · terminal")).to_have_count(1)
    ann.screenshot(path=f"{SHOTS}/page-real-terminal.png")
    ann.keyboard.type("continue")
    ann.keyboard.press("Enter")
    expect(log).to_contain_text("[the terminal is closed]")
    listed(lena, 2)
    expect(item.locator(".pill")).to_have_text("ended")

    def paused():
        return ann.locator(ROWS).evaluate_all("all => all.findIndex((row) => row.querySelector('.pill').dataset.kind === 'paused')")

    # The administrator ends a session, and its task resumes.
    root = signed_in(browser, "root")
    item = opened(ann, paused())
    item.get_by_role("button", name="Prompt").click()
    expect(item.get_by_role("log")).to_contain_text("(Pdb)")
    root.get_by_role("tab", name="Sessions").click()
    root.get_by_role("button", name="End the session with square").click()
    accessible(root, "a question")
    root.locator("#question").get_by_role("button", name="End it").click()
    expect(item.get_by_role("log")).to_contain_text("asked for its end")
    expect(root.locator("#count")).to_have_text("1")
    accessible(root, "sessions")

    # The last task is parked by keyboard, after a confirmation.
    ann.locator(ROWS).first.focus()
    ann.keyboard.press("p")
    ann.keyboard.press("Escape")
    ann.keyboard.press("p")
    accessible(ann, "a question with a field")
    ann.locator("#question select").select_option("4h")
    ann.locator("#question").get_by_role("button", name="Park").click()
    expect(ann.locator("#said")).to_contain_text("parked for you")
    expect(lena.locator(f"{ROWS} .pill")).to_have_text("ann · parked 3h")

    # It is resumed with its whole job.
    ann.get_by_role("button", name="Continue all").click()
    ann.locator("#question").get_by_role("button", name="Cancel").click()
    listed(lena, 1)
    ann.get_by_role("button", name="Continue all").click()
    ann.locator("#question").get_by_role("button", name="Continue").click()
    expect(ann.locator("#said")).to_contain_text("runs on")
    listed(lena, 0)

    # No request left the relay, and none had a token in its URL.
    for page in [ann, lena, root]:
        for address in page.asked:
            assert address.startswith(URL), address
            assert not any(token in address for token in TOKENS.values()), "a token in an address"
    do("done")
    browser.close()
