// A real VS Code (code-server in Chromium) on real Ray, as a user works with it: `npm start`, in this folder, after
//   npm install && npm --prefix ../.. run package && cargo test --no-run
// Writes a picture of each step to target/editor/. They are to be looked at: what is asserted here is little.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';

import { Scene, until, wait } from './scene.mjs';

const pictures = resolve(import.meta.dirname, '../../../../target/editor');
await mkdir(pictures, { recursive: true });
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

async function openSideBar() {
  const icon = await page.waitForSelector('.activitybar [aria-label^="Ray"].action-label', { timeout: 60_000 });
  await icon.click();
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

  step('the dark theme');
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
  await wait(1_500);
  await openSideBar();
  await wait(1_000);
  await picture('9-dark');

  step('the relay goes away');
  scene.relay.kill('SIGKILL');
  await row('unreachable for');
  await (await row('Trying again')).click();
  await page.waitForSelector('.tab[aria-label*="checked"]');
  await wait(1_000);
  await picture('10-away');

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
