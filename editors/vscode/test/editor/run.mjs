// A real VS Code (code-server in Chromium) on real Ray, as a user works with it: `npm start`, in this folder, after
//   npm run setup && npm --prefix ../.. run package && cargo test
// (which puts Ray 2.60.0 into target/ray-venvs). Needs Node.js 24 and Chromium.
// CUT_SECONDS is for how long the network is lost in the middle; more than ten makes it a longer test.
// Writes a picture of each step to target/editor/. They are to be looked at: what is asserted here is little.

import assert from 'node:assert/strict';
import { once } from 'node:events';

import { pictures, Scene, until, wait } from './scene.mjs';
import { play, step, Workbench } from './workbench.mjs';

const CUT_SECONDS = Number(process.env.CUT_SECONDS ?? 10);

const scene = await Scene.start(
  '2.60.0',
  '[post_mortem]\nenabled = true\n',
  'list,view,debug,dashboard:read,dashboard:write',
);
await scene.submit('ann-train', 'train.py');
await until('eight paused ranks', async () => (await scene.list()).length === 8);
await scene.startEditor();
const { page } = scene;

const workbench = new Workbench(page);

const held = async () => (await scene.list()).filter((task) => task.holder !== null && !task.holder.parked_until);
const parked = async () => (await scene.list()).filter((task) => task.holder?.parked_until);

await play(scene, workbench, async () => {
  step('an empty side bar');
  await workbench.openSideBar();
  await page.waitForSelector('text/Add a Relay');
  await workbench.picture('1-empty');

  step('add a relay, with a token');
  await workbench.addRelay(scene.network.port, scene.token);
  await workbench.row('rank 7');
  await wait(1_000);
  await workbench.picture('2-eight-ranks');

  step('inspect a task without attaching');
  await workbench.press('rank 3', 'Inspect Without Attaching');
  await page.waitForSelector(`.tab[aria-label*="rank 3 of"]`);
  await wait(1_000);
  await workbench.picture('3-inspect');
  assert.equal((await held()).length, 0);

  step('compare the ranks');
  await workbench.press('Trainer', 'Compare');
  await until('the comparison', async () => {
    const texts = page.frames().map((frame) => frame.evaluate(() => document.body.innerText).catch(() => ''));
    return (await Promise.all(texts)).some((text) => text.includes('rank 3 differs in scaled'));
  });
  await wait(1_000);
  await workbench.picture('4-compare');

  step('park all');
  await workbench.choose('Trainer', 'Park…');
  await page.waitForSelector('.quick-input-list .monaco-list-row');
  await page.keyboard.press('Enter');
  await until('eight parks', async () => (await parked()).length === 8);
  const end = Math.min(...(await parked()).map((task) => task.holder.parked_until));
  assert(end - Date.now() / 1000 > 3_000, 'parked for an hour');
  await workbench.picture('5-park');

  step('attach to all');
  await workbench.press('Trainer', 'Attach All');
  await until('eight sessions', async () => (await held()).length === 8);
  await page.waitForSelector('.debug-top-stack-frame-line, .codicon-debug-stackframe');
  await wait(2_000);
  await workbench.picture('6-attached');

  step('reload the window: the tasks are parked');
  await page.reload();
  await until('eight parks', async () => (await parked()).length === 8);
  await workbench.openSideBar();
  await workbench.row('Resume 8 sessions');
  await workbench.picture('7-left');

  step('resume');
  await (await workbench.row('Resume 8 sessions')).click();
  await until('eight sessions', async () => (await held()).length === 8);
  await page.waitForSelector('.debug-top-stack-frame-line, .codicon-debug-stackframe');
  const lines = (await scene.list()).map((task) => task.location?.line);
  assert.deepEqual(new Set(lines), new Set([8]));
  await wait(2_000);
  await workbench.picture('8-resumed');

  step(`the network is lost for ${CUT_SECONDS} s: the sessions stay`);
  await workbench.openSideBar();
  scene.network.lose();
  await workbench.row('unreachable for');
  await wait(CUT_SECONDS * 1000);
  scene.network.find();
  await until('the session again', async () => (await workbench.console()).includes('connected again after'));
  assert.equal((await held()).length, 8);

  step('step all from the row of the group, and continue all');
  await workbench.openSideBar();
  await workbench.press('Trainer', 'Step Over, All');
  await until('the next line', async () => (await workbench.lineOfEditor()) === '9');
  await wait(1_500);
  await workbench.picture('9-stepped');
  await workbench.openSideBar();
  await workbench.press('Trainer', 'Continue All');
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
  await workbench.openSideBar();
  await workbench.row('Resume 8 sessions');
  await wait(1_000);
  await workbench.picture('10-restarted');

  step('a task of the user pauses: a notification');
  await scene.submit('ann-eval', 'evaluate.py');
  await page.waitForSelector('.notifications-toasts ::-p-text(is paused)', { timeout: 60_000 });
  await wait(1_000);
  await workbench.picture('11-paused');

  step('a failed task');
  await scene.submit('ann-fail', 'fail.py');
  // Ray names it a moment later.
  await until('the failure', async () => (await scene.failed()).some((task) => task.name === 'prepare'));
  await (await workbench.row('Failed')).click();
  await (await workbench.row('ZeroDivisionError')).click();
  await page.waitForSelector('.tab[aria-label*="failed"]');
  await wait(1_500);
  await workbench.picture('12-failed');

  step('the dark theme');
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
  await wait(1_500);
  await workbench.openSideBar();
  await wait(1_000);
  await workbench.picture('13-dark');

  step('the head is down: the relay says so');
  await scene.stopHead();
  await workbench.row('cannot reach the Ray head');
  await workbench.choose('127.0.0.1', 'Why Is Nothing Here?');
  await page.waitForSelector('.tab[aria-label*="checked"]');
  await wait(1_500);
  await workbench.picture('14-head-down');

  step('the relay goes away');
  scene.relay.kill('SIGKILL');
  await workbench.row('unreachable for');
  await (await workbench.row('Trying again')).click();
  await page.waitForSelector('.tab[aria-label*="checked"]');
  await wait(1_000);
  await workbench.picture('15-away');

  assert.deepEqual(await scene.written(), [], 'the token is in a file');
  console.log(`pictures: ${pictures}`);
});
