"""Somebody with a browser at the relay's page: `page.py CHROMIUM URL SHOTS`, and on standard input one line of JSON with tokens.

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
    # The policy of the page, broken by itself, is told on the console.
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


def opened(page, at):
    """The item of the list at that place, opened by the keyboard."""
    first = page.locator("#rows > li").nth(at)
    first.locator(".open").focus()
    page.keyboard.press("Enter")
    first.locator("dl").wait_for()
    # By its id: others come and go around it.
    return page.locator(f"#rows > li:has(#{first.locator('.details').get_attribute('id')})")


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    expect.set_options(timeout=PATIENCE)

    # The list comes by itself.
    ann = signed_in(browser, "ann")
    expect(ann.locator("#none")).to_have_text("No task waits at a breakpoint.")
    do("start")
    expect(ann.locator("#rows > li")).to_have_count(3, timeout=180_000)
    expect(ann.locator("#rows .name").first).to_have_text("square")
    # The test's tasks ask for their node, and for no CPU.
    expect(ann.locator("#rows .holds").first).to_have_text("with 0.001 head")
    accessible(ann, "the list")
    ann.screenshot(path=f"{SHOTS}/page-real-list.png")

    # With `list` alone nothing else is shown, and nothing else is had.
    lena = signed_in(browser, "lena", color_scheme="dark", viewport={"width": 390, "height": 800})
    expect(lena.locator("#rows > li")).to_have_count(3)
    item = opened(lena, 0)
    expect(item.locator(".told")).to_have_text("With your permissions there is nothing to do here.")
    assert item.locator("button:not(.open)").count() == 0, item.inner_text()
    row = item.locator("dd").first.inner_text()
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

    # With `view` what there is to see, and the task stays.
    vera = signed_in(browser, "vera", color_scheme="dark")
    item = opened(vera, 0)
    item.get_by_role("button", name="Source and variables").click()
    expect(item.locator("mark")).to_contain_text("breakpoint()")
    expect(item.locator(".frame").first.locator("tbody tr").filter(has_text="y")).to_contain_text("int")
    assert item.get_by_role("button", name="Terminal").count() == 0
    assert item.get_by_role("button", name="Let it run on").count() == 0
    expect(vera.locator("#rows > li .badge").first).to_have_text("paused")
    item.get_by_role("button", name="Source and variables").click()
    expect(item.locator(".told")).to_contain_text("As it stood")
    accessible(vera, "a snapshot")
    vera.screenshot(path=f"{SHOTS}/page-real-snapshot.png", full_page=True)
    item.get_by_role("button", name="Copy VS Code configuration").click()
    expect(item.get_by_label("launch.json")).to_contain_text('"breakpoint": "')
    expect(item.locator(".told")).to_contain_text("launch.json")
    vera.context.close()

    # The head is away, and is back.
    do("cut")
    expect(ann.locator("#troubles")).to_contain_text("ago")
    expect(ann.locator("#rows > li.old")).to_have_count(3)
    accessible(ann, "no head")
    ann.screenshot(path=f"{SHOTS}/page-real-down.png")
    do("mend")
    expect(ann.locator("#rows > li.old")).to_have_count(0)
    expect(ann.locator("#troubles p")).to_have_count(0)

    # A terminal: a variable is changed, and the task goes on with it.
    item = opened(ann, 0)
    item.get_by_role("button", name="Terminal").click()
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
    expect(lena.locator("#rows > li").filter(has_text="terminal")).to_have_count(1)
    ann.screenshot(path=f"{SHOTS}/page-real-terminal.png")
    ann.keyboard.type("continue")
    ann.keyboard.press("Enter")
    expect(log).to_contain_text("[the terminal is closed]")
    expect(lena.locator("#rows > li")).to_have_count(2)

    def paused():
        return ann.locator("#rows > li").evaluate_all("all => all.findIndex((item) => item.dataset.state === 'paused')")

    # Whoever runs the relay ends a session, and its task runs on.
    root = signed_in(browser, "root")
    item = opened(ann, paused())
    item.get_by_role("button", name="Terminal").click()
    expect(item.get_by_role("log")).to_contain_text("(Pdb)")
    root.get_by_role("button", name="End the session with square").click()
    accessible(root, "a question")
    root.locator("dialog").get_by_role("button", name="End it").click()
    expect(item.get_by_role("log")).to_contain_text("asked for its end")
    expect(root.locator("#rows > li")).to_have_count(1)
    accessible(root, "sessions")

    # The last is let run on; it is asked first.
    item = opened(ann, paused())
    item.get_by_role("button", name="Let it run on").click()
    ann.locator("dialog").get_by_role("button", name="Cancel").click()
    expect(lena.locator("#rows > li")).to_have_count(1)
    item.get_by_role("button", name="Let it run on").click()
    ann.locator("dialog").get_by_role("button", name="Let it run on").click()
    expect(lena.locator("#rows > li")).to_have_count(0)

    # No request went elsewhere, and none had a token in its address.
    for page in [ann, lena, root]:
        for address in page.asked:
            assert address.startswith(URL), address
            assert not any(token in address for token in TOKENS.values()), "a token in an address"
    do("done")
    browser.close()
