// Texts about one task: name, location, status and holder.

import { briefSpan, clock, resourceText } from './text.js';

/** Short names of editors. */
const CLIENTS = { 'Visual Studio Code': 'VS Code', vscode: 'VS Code', 'ray-relay terminal': 'terminal' };

/** The name of a task, with its exception in post-mortem. */
export function name(row) {
  const text = row.name || `worker ${String(row.worker_id ?? '').slice(0, 8)}`;
  return row.reason === 'post_mortem' ? `${text} (${row.exception || 'post-mortem'})` : text;
}

/** The name with actor and rank. */
export function title(row) {
  const text = row.actor_name ? `${name(row)} [${row.actor_name}]` : name(row);
  return row.rank == null ? text : `${text} rank ${row.rank}`;
}

/** The location: `train.py:26`. */
export function locationText(row) {
  return row.location ? `${row.location.file}:${row.location.line}` : '';
}

/** When collectives that wait for it time out, in milliseconds of this machine's clock; null: unknown. */
export function timesOut(row) {
  return row.collective_ends == null ? null : startTime(row) + (row.collective_ends - row.first_seen) * 1000;
}

/** When it stopped, started or failed, in milliseconds of this machine's clock. */
export function startTime(row) {
  row.startedAt ??= Date.now() - (row.waiting_seconds ?? row.failed_seconds ?? row.running_seconds ?? 0) * 1000;
  return row.startedAt;
}

/** The time in seconds of the relay's clock, which may differ from this machine's. */
function now(row) {
  return row.first_seen + (Date.now() - startTime(row)) / 1000;
}

/** Whether its session belongs to `me`. Without authentication, every session does. */
export function isOwn(row, me) {
  return !me || (row.holder?.subject ?? null) === me;
}

/** The status in words: `paused`, `ada · VS Code`, `parked 12m`; `kind` is for the colour. */
export function status(row, me) {
  const { holder, state } = row;
  if (state === 'gone' || (holder && row.task_ended)) return { kind: 'gone', word: 'ended' };
  if (!holder && state === 'paused' && row.reason === 'post_mortem') return { kind: 'failed', word: 'post-mortem' };
  if (!holder) return { kind: state, word: state };
  if (holder.parked_until) {
    const word = `parked ${briefSpan(holder.parked_until - now(row))}`;
    return { kind: 'parked', word: isOwn(row, me) || !holder.subject ? word : `${holder.subject} · ${word}` };
  }
  const who = me && isOwn(row, me) ? 'you' : holder.subject;
  const word = [who, CLIENTS[holder.client] ?? holder.client].filter(Boolean).join(' · ');
  return { kind: 'attached', word: word || 'a client' };
}

/** The status in full. */
export function statusDetails(row, me) {
  const { holder, state, why } = row;
  const who = holder?.subject || holder?.client || 'a client';
  if (state === 'gone') return 'It is not paused any more';
  if (holder && row.task_ended) return `Its task has ended, and ${who} still has its worker`;
  const sooner = row.group?.startsWith('Serve ') ? ', but Serve\'s health check ends it after some two minutes (health_check_timeout_s)' : '';
  if (holder?.parked_until) return `Parked for ${who} until ${clock(new Date(holder.parked_until * 1000))}${sooner}`;
  if (holder) return `Debugged by ${status(row, me).word}`;
  if (state === 'paused' && row.reason === 'post_mortem') return `paused after ${row.exception || 'an exception'}, which its task has raised`;
  return why ? `${state}: ${why}` : state;
}

/** The name of the job of `row`: the id it was submitted with, or Ray's. */
export const jobName = (row) => row.submission_id || row.job_id;

/** The texts that a filter searches. */
export function searchTexts(row, me) {
  const { word } = status(row, me);
  return [row.id, title(row), locationText(row), row.location?.function, row.node_ip, row.cluster, row.job_id, row.submission_id, row.train_run, row.task_id, row.worker_id, row.pid, row.state, word, row.why, row.holder?.subject, resourceText(row)];
}

/** A label for `rows`: `rank 3`, `ranks 0-2,4`, `Trainer.step pid 41`, `7 tasks`. Others may have the same title. */
export function members(rows) {
  if (rows.some((row) => row.rank == null)) {
    const [first] = rows;
    if (rows.length > 1) return `${rows.length} tasks`;
    return first.pid == null ? title(first) : `${title(first)} pid ${first.pid}`;
  }
  const ranks = [...new Set(rows.map((row) => row.rank))].sort((a, b) => a - b);
  const runs = [];
  for (const rank of ranks) {
    const last = runs.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  const text = runs.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from},${to}` : `${from}-${to}`)).join(',');
  return `rank${ranks.length === 1 ? '' : 's'} ${text}`;
}

/** The locations of `rows`, the rarest first: `rank 3 at loss.py:9, 7 of 8 at train.py:42`. */
export function locationSummary(rows) {
  const at = Map.groupBy(rows, locationText);
  const all = [...at].filter(([where]) => where).sort(([, a], [, b]) => a.length - b.length);
  if (all.length === 0) return '';
  const [where, most] = all.pop();
  if (most.length === rows.length) return rows.length === 1 ? `at ${where}` : `all at ${where}`;
  const parts = all.slice(0, 2).map(([other, some]) => `${members(some)} at ${other}`);
  if (all.length > 2) parts.push(`${all.length - 2} more places`);
  return [...parts, `${most.length} of ${rows.length} at ${where}`].join(', ');
}
