// A breakpoint in the gutter of a real VS Code stops tasks that run: `npm run armed`, after what run.mjs names and
//   cargo test --test it -- armed
// (which puts Ray for Python 3.12 into target/ray-venvs). Pictures go to target/editor/.

import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { pictures, Scene, until, wait } from './scene.mjs';
import { play, step, Workbench } from './workbench.mjs';

const LINE = '8';
const CONFIGURATION = {
  name: 'Ray',
  type: 'ray-relay',
  request: 'attach',
  rayRelay: { all: true, job: 'ann-loop' },
};

const scene = await Scene.start('2.60.0-python3.12', '', 'list,view,debug,attach,dashboard:read,dashboard:write');
await scene.submit('ann-loop', 'loop.py');
await until('eight ranks that run', async () =>
  [0, 7].every(async (rank) => (await scene.printed('ann-loop')).includes(`rank ${rank} has`)),
);
await mkdir(join(scene.folder, 'project/.vscode'));
await writeFile(
  join(scene.folder, 'project/.vscode/launch.json'),
  JSON.stringify({ version: '0.2.0', configurations: [CONFIGURATION] }),
);
await scene.startEditor();
const { page } = scene;
const workbench = new Workbench(page);

/** Opens the menu of the gutter at `line`, and chooses `label`. */
async function inGutter(line, label) {
  const number = await until(`line ${line}`, async () => {
    for (const one of await page.$$('.monaco-editor .line-numbers')) {
      if ((await one.evaluate((element) => element.textContent.trim())) === line) return one;
    }
  });
  const { x, y, height } = await number.boundingBox();
  await page.mouse.click(x - 8, y + height / 2, { button: 'right' });
  const selector = `>>> .monaco-menu .action-label[aria-label^="${label}"]`;
  await (await page.waitForSelector(selector)).hover();
  await page.keyboard.press('Enter');
}

const held = async () => (await scene.list()).filter((task) => task.holder !== null);

/** The ranks whose program goes on within three seconds. */
async function moving() {
  const batches = async () => {
    const printed = (await scene.printed('ann-loop')).matchAll(/rank (\d) has batch (\d+)\./g);
    return new Map([...printed].map(([, rank, batch]) => [rank, batch]));
  };
  const before = await batches();
  await wait(3_000);
  const after = await batches();
  return [...after.keys()].filter((rank) => after.get(rank) !== before.get(rank)).sort();
}

await play(scene, workbench, async () => {
  step('add a relay');
  await workbench.openSideBar();
  await workbench.addRelay(scene.network.port, scene.token);
  await workbench.row('Nothing is paused');

  step('a breakpoint in the gutter, and F5');
  await page.keyboard.down('Control');
  await page.keyboard.press('p');
  await page.keyboard.up('Control');
  await page.waitForSelector('.quick-input-widget input');
  await workbench.type('loop.py');
  await page.waitForSelector('.tab[aria-label*="loop.py"]');
  await wait(1_000);
  await inGutter(LINE, 'Add Breakpoint');
  await workbench.picture('a1-set');
  const began = Date.now();
  await page.keyboard.press('F5');
  await until('a rank stops', async () => (await held()).length > 0);
  step(`stopped after ${Date.now() - began} ms`);
  const lines = async () => (await scene.list()).map((task) => task.location?.line);
  await until('eight ranks on the line', async () => (await lines()).join() === Array(8).fill(LINE).join());
  await until('the line in the editor', async () => (await workbench.lineOfEditor()) === LINE);
  await wait(1_500);
  await workbench.picture('a2-stopped');

  step('without the breakpoint all continue');
  await inGutter(LINE, 'Remove Breakpoint');
  await workbench.openSideBar();
  await workbench.press('Trainer', 'Continue All');
  await until('eight ranks that run', async () => (await moving()).length === 8);
  await until('no line in the editor', async () => (await workbench.lineOfEditor()) === undefined);

  step('a condition stops rank 3 alone');
  await inGutter(LINE, 'Add Conditional Breakpoint');
  await wait(1_000);
  await workbench.type('ray.rank == 3');
  await until('seven ranks that run', async () => (await moving()).join() === '0,1,2,4,5,6,7');
  await wait(1_000);
  await workbench.picture('a3-condition');
  await inGutter(LINE, 'Remove Breakpoint');
  await workbench.openSideBar();
  await workbench.press('Trainer', 'Continue All');
  await until('eight ranks that run', async () => (await moving()).length === 8);

  step('a logpoint prints from eight ranks, and nobody stops');
  await inGutter(LINE, 'Add Logpoint');
  await wait(1_000);
  await workbench.type('loss={loss:.2f}');
  await until('lines of eight ranks', async () => {
    const text = await workbench.console();
    return [...Array(8).keys()].every((rank) => new RegExp(`${rank}\\D.*loss=`).test(text));
  });
  assert.equal((await moving()).length, 8);
  await workbench.picture('a4-logpoint');

  step('disconnect: nothing is armed, and all run');
  await page.keyboard.down('Shift');
  await page.keyboard.press('F5');
  await page.keyboard.up('Shift');
  await until('no session', async () => (await scene.ask('sessions')).sessions.length === 0);
  await until('nothing paused', async () => (await scene.list()).length === 0);
  assert.equal((await moving()).length, 8);
  await wait(1_000);
  await workbench.picture('a5-left');
});
