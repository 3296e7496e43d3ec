// A real VS Code (code-server in Chromium) on real Ray, as a user works with it: `npm start`, in this folder, after
//   npm run setup && npm --prefix ../.. run package && cargo test
// (which puts Ray 2.60.0 into target/ray-venvs). Needs Node.js 24 and Chromium.
// Writes a picture of each step to target/editor/. They are to be looked at: what is asserted here is little.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';

import { pictures, Scene, until, wait } from './scene.mjs';

const scene = await Scene.start();
const { page } = scene;

const picture = (name) => page.screenshot({ path: join(pictures, `${name}.png`) });
const step = (what) => console.log(`${new Date().toISOString().slice(11, 19)}  ${what}`);
const type = async (text) => {
  await page.keyboard.type(text);
  await wait(400);
  await page.keyboard.press('Enter');
};

/** The row of the side bar that has `text`. */
async function row(text) {
  return until(`a row "${text}"`, async () => {
    for (const one of await page.$$('.monaco-list-row')) {
      if ((await one.evaluate((element) => element.textContent)).includes(text)) return one;
    }
  });
}

/** Presses the button `label` of the row that has `text`. */
async function press(text, label) {
  await until(`${label} of ${text}`, async () => {
    try {
      // The list is drawn anew when something changes.
      const found = await row(text);
      await found.hover();
      await (await found.$(`a[aria-label="${label}"]`)).click();
      return true;
    } catch {
      return false;
    }
  });
}

/** Chooses `label` in the menu of the row that has `text`. */
async function choose(text, label) {
  await until(`${label} of ${text}`, async () => {
    try {
      await (await row(text)).click({ button: 'right' });
      const selector = `>>> .monaco-menu .action-label[aria-label="${label}"]`;
      const item = await page.waitForSelector(selector, { timeout: 3_000 });
      // A menu that has just opened takes no click.
      await item.hover();
      await page.keyboard.press('Enter');
      await page.waitForSelector(selector, { hidden: true, timeout: 2_000 });
      return true;
    } catch {
      await page.keyboard.press('Escape');
      return false;
    }
  });
}

/** A stop shows the view "Run and Debug" instead. */
async function openSideBar() {
  const icon = await page.waitForSelector('.activitybar .action-item:has([aria-label^="Ray"].action-label)', {
    timeout: 60_000,
  });
  if (!(await icon.evaluate((element) => element.classList.contains('checked')))) await icon.click();
}

/** The number of the line that the debugger shows as the current one. */
async function lineOfEditor() {
  return page.evaluate(() => {
    const glyph = document.querySelector('.monaco-editor .codicon-debug-stackframe');
    if (glyph === null) return undefined;
    const top = glyph.getBoundingClientRect().top;
    const numbers = [...document.querySelectorAll('.monaco-editor .line-numbers')];
    return numbers.find((one) => Math.abs(one.getBoundingClientRect().top - top) < 5)?.textContent.trim();
  });
}

const held = async () => (await scene.list()).filter((task) => task.holder !== null && !task.holder.parked_until);
const parked = async () => (await scene.list()).filter((task) => task.holder?.parked_until);

try {
  step('an empty side bar');
  await openSideBar();
  await page.waitForSelector('text/Add a Relay');
  await picture('1-empty');

  step('add a relay, with a token');
  await (await page.$('.pane-body .monaco-button')).click();
  await page.waitForSelector('.quick-input-list .monaco-list-row');
  await page.keyboard.press('Enter');
  await wait(500);
  await type(`127.0.0.1:${scene.port}`);
  await page.waitForSelector('text/Enter a token');
  await page.keyboard.press('Enter');
  await wait(1_000);
  await type(scene.token);
  await row('rank 7');
  await wait(1_000);
  await picture('2-eight-ranks');

  step('inspect a task without attaching');
  await press('rank 3', 'Inspect Without Attaching');
  await page.waitForSelector(`.tab[aria-label*="rank 3 of"]`);
  await wait(1_000);
  await picture('3-inspect');
  assert.equal((await held()).length, 0);

  step('compare the ranks');
  await press('Trainer', 'Compare');
  await until('the comparison', async () => {
    const texts = page.frames().map((frame) => frame.evaluate(() => document.body.innerText).catch(() => ''));
    return (await Promise.all(texts)).some((text) => text.includes('rank 3 differs in scaled'));
  });
  await wait(1_000);
  await picture('4-compare');

  step('park all');
  await choose('Trainer', 'Park…');
  await page.waitForSelector('.quick-input-list .monaco-list-row');
  await page.keyboard.press('Enter');
  await until('eight parks', async () => (await parked()).length === 8);
  const end = Math.min(...(await parked()).map((task) => task.holder.parked_until));
  assert(end - Date.now() / 1000 > 3_000, 'parked for an hour');
  await picture('5-park');

  step('attach to all');
  await press('Trainer', 'Attach All');
  await until('eight sessions', async () => (await held()).length === 8);
  await page.waitForSelector('.debug-top-stack-frame-line, .codicon-debug-stackframe');
  await wait(2_000);
  await picture('6-attached');

  step('reload the window: the tasks are parked');
  await page.reload();
  await until('eight parks', async () => (await parked()).length === 8);
  await openSideBar();
  await row('Resume 8 sessions');
  await picture('7-left');

  step('resume');
  await (await row('Resume 8 sessions')).click();
  await until('eight sessions', async () => (await held()).length === 8);
  await page.waitForSelector('.debug-top-stack-frame-line, .codicon-debug-stackframe');
  const lines = (await scene.list()).map((task) => task.location?.line);
  assert.deepEqual(new Set(lines), new Set([8]));
  await wait(2_000);
  await picture('8-resumed');

  step('step all from the row of the group, and continue all');
  await openSideBar();
  await press('Trainer', 'Step Over, All');
  await until('the next line', async () => (await lineOfEditor()) === '9');
  await picture('9-stepped');
  await openSideBar();
  await press('Trainer', 'Continue All');
  await until('eight in the next epoch', async () => {
    const printed = await scene.printed('ann-train');
    return printed.split('begins epoch 1.').length === 9;
  });
  assert(!(await scene.printed('ann-train')).includes('epoch 2.'));
  assert.equal((await held()).length, 8);

  step('the relay is killed, and another one starts: nobody has resumed');
  scene.relay.kill('SIGKILL');
  await once(scene.relay, 'exit');
  await scene.startRelay();
  await until('eight parks', async () => (await parked()).length === 8);
  await openSideBar();
  await row('Resume 8 sessions');
  await wait(1_000);
  await picture('10-restarted');

  step('a task of the user pauses: a notification');
  await scene.submit('ann-eval', 'evaluate.py');
  await page.waitForSelector('.notifications-toasts ::-p-text(is paused)', { timeout: 60_000 });
  await wait(1_000);
  await picture('11-paused');

  step('a failed task');
  await scene.submit('ann-fail', 'fail.py');
  // Ray names it a moment later.
  await until('the failure', async () => (await scene.failed()).some((task) => task.name === 'prepare'));
  await (await row('Failed')).click();
  await (await row('ZeroDivisionError')).click();
  await page.waitForSelector('.tab[aria-label*="failed"]');
  await wait(1_500);
  await picture('12-failed');

  step('the dark theme');
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
  await wait(1_500);
  await openSideBar();
  await wait(1_000);
  await picture('13-dark');

  step('the head is down: the relay says so');
  await scene.stopHead();
  await row('does not answer');
  await choose('127.0.0.1', 'Why Is Nothing Here?');
  await page.waitForSelector('.tab[aria-label*="checked"]');
  await wait(1_500);
  await picture('14-head-down');

  step('the relay goes away');
  scene.relay.kill('SIGKILL');
  await row('unreachable for');
  await (await row('Trying again')).click();
  await page.waitForSelector('.tab[aria-label*="checked"]');
  await wait(1_000);
  await picture('15-away');

  assert.deepEqual(await scene.written(), [], 'the token is in a file');
  console.log(`pictures: ${pictures}`);
} catch (error) {
  await picture('failed');
  console.error(error);
  process.exitCode = 1;
} finally {
  await scene.stop();
}
// With it ends what was started.
process.exit();
