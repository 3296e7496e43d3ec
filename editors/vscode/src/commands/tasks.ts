// What a user does with the tasks of the side bar.

import * as v from 'valibot';
import * as vscode from 'vscode';

import type { Breakpoint } from '../relay/breakpoint.js';
import { WORKER_TIMEOUT_MS } from '../relay/endpoint.js';
import type { Relay } from '../relay/relay.js';
import type { FailedTask, RunningTask } from '../relay/task.js';
import { attachConfiguration, type AttachSelector } from '../dap/configuration.js';
import { oneLine } from '../text.js';
import type { SnapshotDocuments } from '../view/documents.js';
import { Comparison, pageOfComparison } from '../view/comparison.js';
import { Inspections, snapshotOf } from '../view/inspection.js';
import { TaskSnapshot, textOfSnapshot } from '../view/snapshot.js';
import { textOfVerdict, Verdict } from '../view/verdict.js';
import type { GroupRow, JobRow } from '../view/rows.js';
import { grouped, jobOf, labelOf } from '../view/rows.js';
import { confirmed, progress, showError, showNotice } from '../notify.js';
import { nullish } from '../relay/schema.js';

/** Most tasks that are compared at a time. */
const MAX_COMPARED = 256;

const Released = v.object({
  results: v.array(v.object({ id: v.string(), released: v.boolean(), error: v.optional(v.string()) })),
});

const Parked = v.object({ parked_until: v.number(), warning: nullish(v.string()) });
type Parked = v.InferOutput<typeof Parked>;

/** The answer of a relay that asks workers first. */
function fromWorkers<T>(relay: Relay, schema: v.GenericSchema<unknown, T>, path: string, body: object): Promise<T> {
  return relay.endpoint.json(schema, path, { body, timeoutMs: WORKER_TIMEOUT_MS });
}

/** What a sentence calls `tasks`. */
function calledIn(tasks: Breakpoint[], first: Breakpoint): string {
  return tasks.length === 1 ? labelOf(first) : `${tasks.length} tasks`;
}

async function start(relay: Relay, name: string, selector: AttachSelector): Promise<void> {
  const folder = vscode.workspace.workspaceFolders?.[0];
  // Not the name of a configuration in launch.json: Restart takes that one by its name, whatever its type.
  const unlike = `Ray · ${oneLine(name, 100)}`;
  await vscode.debug.startDebugging(folder, attachConfiguration(relay.name, unlike, selector));
}

export function attach(relay: Relay, task: Breakpoint): Promise<void> {
  return start(relay, task.title, { breakpoint: task.id });
}

/** Attaches to all tasks of a cluster, now and later. */
export function attachCluster(relay: Relay, cluster: string | undefined): Promise<void> {
  return start(relay, cluster ?? relay.name, { all: true, ...(cluster === undefined ? {} : { cluster }) });
}

/** Attaches to all tasks of a job, or of one group of it. */
export function attachAll(relay: Relay, row: JobRow | GroupRow): Promise<void> {
  if (row.job === undefined) return attachTasks(relay, row.tasks);
  const selector: AttachSelector = { all: true, cluster: row.cluster, job: row.job };
  const names = new Set(row.tasks.map((task) => task.name));
  // A group of actors has one name for each method: it is the job then.
  const [name] = names;
  if (row.kind === 'group' && names.size === 1 && name !== undefined) selector.task = name;
  return start(relay, row.label, selector);
}

/** Shows the stack, source and variables of a task that stays as it is. */
export async function inspect(relay: Relay, task: Breakpoint, documents: SnapshotDocuments): Promise<void> {
  const request = () => fromWorkers(relay, TaskSnapshot, '/relay/v1/snapshot', { id: task.id });
  const snapshot = await progress(`Inspecting ${labelOf(task)}`, request);
  const title = oneLine(task.title, 200);
  await documents.show(
    `${relay.saved.id}/${task.id}`,
    `${labelOf(task)} of ${relay.name}`,
    textOfSnapshot(title, snapshot),
  );
}

/** Shows what a failed task has left. */
export async function inspectFailed(relay: Relay, task: FailedTask, documents: SnapshotDocuments): Promise<void> {
  const request = () => fromWorkers(relay, Inspections, '/relay/v1/looks', { failed: task.id });
  const snapshot = snapshotOf(await progress(`Reading what ${task.name} has left`, request));
  if (typeof snapshot === 'string') throw new Error(snapshot);
  const title = oneLine(`${task.name} has failed`, 200);
  const name = oneLine(`${task.name}, failed`, 100);
  await documents.show(
    `${relay.saved.id}/${task.id}`,
    name,
    textOfSnapshot(title, snapshot, 'As its exception left it.'),
  );
}

/** Opens a debugger in a task that runs, which stops it. */
export async function stopRunning(relay: Relay, task: RunningTask): Promise<void> {
  const detail =
    'This stops the task at its current line and opens a debug session. Other work that waits for the task waits too.';
  if (!(await confirmed(`Pause ${oneLine(task.name, 100)}?`, detail, 'Pause and Attach'))) return;
  const which = task.task_id === null ? { worker: task.worker_id } : { task: task.task_id };
  await start(relay, task.name, { ...which, running: true });
}

/** Shows the relay's verdict on the job of a running task. */
export async function explainHang(relay: Relay, task: RunningTask, documents: SnapshotDocuments): Promise<void> {
  const job = task.submission_id ?? task.job_id;
  const { cluster } = task;
  if (job === null) throw new Error(`Ray does not say which job ${oneLine(task.name, 100)} belongs to.`);
  const request = () => fromWorkers(relay, Verdict, '/relay/v1/why', { job, cluster });
  const verdict = await progress(`Inspecting all processes of ${job}`, request);
  const id = `${relay.saved.id}/why/${cluster}/${job}`;
  await documents.show(id, `Job ${oneLine(job, 100)}`, textOfVerdict(job, cluster, verdict));
}

/** Shows what differs between the tasks of `row`, which stay as they are. */
export async function compare(relay: Relay, row: JobRow | GroupRow): Promise<void> {
  const ids = row.tasks.map((task) => task.id).slice(0, MAX_COMPARED);
  const request = () => fromWorkers(relay, Comparison, '/relay/v1/compare', { ids });
  const comparison = await progress(`Comparing ${ids.length} tasks of ${row.label}`, request);
  const title = `${row.label}: what differs`;
  const page = { enableScripts: false, enableCommandUris: false, localResourceRoots: [] };
  const panel = vscode.window.createWebviewPanel('rayRelay.comparison', title, vscode.ViewColumn.Active, page);
  panel.webview.html = pageOfComparison(title, comparison);
}

/** Attaches to `tasks`: to a whole job where the list has no other task of it, and else to one after another. */
export async function attachTasks(relay: Relay, tasks: Breakpoint[]): Promise<void> {
  const ids = new Set(tasks.map((task) => task.id));
  const listed = grouped([...(relay.feed?.rows ?? [])], (task) => jobOf(task).key);
  for (const [key, ofJob] of grouped(tasks, (task) => jobOf(task).key)) {
    const [first, second] = ofJob;
    const job = first && jobOf(first).id;
    const isWhole = listed.get(key)?.every((task) => ids.has(task.id)) === true;
    if (first !== undefined && second !== undefined && job !== undefined && isWhole) {
      await start(relay, job, { all: true, cluster: first.cluster, job });
    } else {
      for (const task of ofJob) await attach(relay, task);
    }
  }
}

/** Keeps paused tasks for the user. */
export async function park(relay: Relay, tasks: Breakpoint[]): Promise<void> {
  const [first] = tasks;
  if (first === undefined)
    throw new Error('None of these can be parked: leave your sessions by "Park and Leave" first.');
  const what = calledIn(tasks, first);
  const choices = [
    { label: '1 hour', value: '1h' },
    { label: '4 hours', value: '4h' },
    { label: '16 hours', value: '16h' },
    { label: 'Other…', value: '' },
  ];
  const choice = await vscode.window.showQuickPick(choices, { title: `Keep ${what} paused for you` });
  if (choice === undefined) return;
  const time = choice.value || (await askTime());
  if (time === undefined) return;
  const parked: Parked[] = [];
  const failures: unknown[] = [];
  await progress(`Parking ${what}`, async () => {
    for (const { id } of tasks) {
      await fromWorkers(relay, Parked, '/relay/v1/park', { id, for: time }).then(
        (one) => parked.push(one),
        (error: unknown) => failures.push(error),
      );
    }
  });
  const why = failures[0] instanceof Error ? failures[0].message : '';
  if (failures.length > 0) void showError(`${failures.length} of ${tasks.length} not parked: ${why}`);
  if (parked.length === 0) return;
  // The earliest end: a credential may end before the requested time.
  const until = new Date(Math.min(...parked.map((one) => one.parked_until)) * 1000).toLocaleString();
  const warning = parked.find((one) => one.warning !== null)?.warning ?? '';
  const count = failures.length === 0 ? what : `${parked.length} tasks`;
  void showNotice(`${count} parked for you until ${until}. ${warning}`);
}

function askTime(): Thenable<string | undefined> {
  return vscode.window.showInputBox({
    title: 'For how long?',
    placeHolder: '90m, 12h, 2d',
    validateInput: (text) =>
      /^\d+\s*[smhd]$/.test(text.trim()) ? undefined : 'A number and m, h or d, such as 90m or 12h.',
  });
}

/** Releases tasks, after a question: that cannot be undone. */
export async function release(relay: Relay, tasks: Breakpoint[]): Promise<void> {
  const [first] = tasks;
  if (first === undefined) return;
  const what = calledIn(tasks, first);
  const detail = 'Continues to the next breakpoint, or to the end. This cannot be undone.';
  if (!(await confirmed(`Release ${what}?`, detail, 'Release'))) return;
  const ids = tasks.map((task) => task.id);
  // Before the request: the list may lose them before it is answered.
  for (const id of ids) relay.released.add(id);
  const request = () => fromWorkers(relay, Released, '/relay/v1/release', { ids });
  const { results } = await progress(`Releasing ${what}`, request).catch((error: unknown) => {
    for (const id of ids) relay.released.delete(id);
    throw error;
  });
  const failed = results.filter((result) => !result.released);
  for (const { id } of failed) relay.released.delete(id);
  if (failed.length === 0) return;
  const why = failed[0]?.error ?? 'the relay does not say why';
  void showError(`${failed.length} of ${results.length} not released: ${why}`);
}

/** Copies the address of the task's page, or its id where the relay has no address. */
export async function copyLink(relay: Relay, task: Breakpoint): Promise<void> {
  const { at } = relay.saved;
  await vscode.env.clipboard.writeText('url' in at ? `${at.url}/relay/#${task.id}` : task.id);
}
