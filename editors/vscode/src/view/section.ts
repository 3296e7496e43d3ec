// The sections "Failed" and "Running" of a relay, which are read when they are unfolded.

import type { Endpoint } from '../relay/endpoint.js';
import { FailedTasks, MAX_TASKS, RunningTasks, type FailedTask, type RunningTask } from '../relay/task.js';
import { briefSpan, fileName, oneLine } from '../text.js';
import { message, type MessageRow } from './rows.js';

/** For how long what was read is shown without asking again: a redraw of the tree asks for all rows. */
const FRESH_MS = 10_000;

const MAX_TEXT = 200;

export type SectionName = 'failed' | 'running';

export interface FailedRow {
  kind: 'failed';
  label: string;
  description: string;
  task: FailedTask;
}

export interface RunningRow {
  kind: 'running';
  label: string;
  description: string;
  task: RunningTask;
}

export type SectionRow = FailedRow | RunningRow | MessageRow;

/** One section of one relay. */
export class Section {
  private rows: Promise<SectionRow[]> | undefined;
  private readAt = 0;

  constructor(
    private readonly endpoint: Endpoint,
    private readonly name: SectionName,
  ) {}

  /** Whether rows have been read, and may be others now. */
  isStale(now: number): boolean {
    return this.rows !== undefined && now - this.readAt > FRESH_MS;
  }

  /** The rows, as they are or were a moment ago. Never rejects: a failure is a row. */
  read(now: number): Promise<SectionRow[]> {
    if (this.rows === undefined || this.isStale(now)) {
      this.readAt = now;
      const request = this.name === 'failed' ? this.failed(now) : this.running(now);
      this.rows = request.catch((error: unknown) => [
        message([this.name], error instanceof Error ? error.message : String(error), true),
      ]);
    }
    return this.rows;
  }

  private async failed(now: number): Promise<SectionRow[]> {
    const { tasks, kept } = await this.endpoint.json(FailedTasks, `/relay/v1/tasks?state=failed&limit=${MAX_TASKS}`);
    if (!kept) return [this.note('This relay keeps no failed tasks: its operator can switch on [post_mortem].')];
    if (tasks.length === 0) return [this.note('No task has failed.')];
    return tasks.map((task) => rowOfFailed(task, now));
  }

  private async running(now: number): Promise<SectionRow[]> {
    const { tasks } = await this.endpoint.json(RunningTasks, `/relay/v1/tasks?limit=${MAX_TASKS}`);
    const shown = tasks.filter((task) => task.breakpoint === null);
    return shown.length === 0 ? [this.note('No task runs.')] : shown.map((task) => rowOfRunning(task, now));
  }

  private note(text: string): MessageRow {
    return message([this.name], text, false);
  }
}

const labelOf = (task: FailedTask | RunningTask) =>
  oneLine(task.rank === null ? task.name : `${task.name} rank ${task.rank}`, MAX_TEXT);

export function rowOfFailed(task: FailedTask, now: number): FailedRow {
  const location = task.location === null ? '' : `${fileName(task.location.file)}:${task.location.line}`;
  const parts = [task.exception, location, `${briefSpan(now / 1000 - task.failed)} ago`];
  const description = oneLine(parts.filter(Boolean).join(' · '), MAX_TEXT);
  return { kind: 'failed', label: labelOf(task), description, task };
}

export function rowOfRunning(task: RunningTask, now: number): RunningRow {
  const runs = task.started === null ? 'runs' : `runs for ${briefSpan(now / 1000 - task.started)}`;
  const description = oneLine([runs, task.node_ip ?? ''].filter(Boolean).join(' · '), MAX_TEXT);
  return { kind: 'running', label: labelOf(task), description, task };
}
