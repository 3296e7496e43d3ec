// The sections "Failed" and "Running" of a relay, which are read when they are unfolded.

import type { Endpoint } from '../relay/endpoint.js';
import { FailedTasks, RunningTasks, type FailedTask, type RunningTask } from '../relay/task.js';
import { briefSpan, fileName, oneLine } from '../text.js';

/** For how long what was read is shown without asking again: a redraw of the tree asks for all rows. */
const FRESH_MS = 10_000;

const MAX_TEXT = 200;

export type SectionName = 'failed' | 'running';

/** A row of a section. A sentence has no task. */
export interface SectionRow {
  label: string;
  description: string;
  failed?: FailedTask;
  running?: RunningTask;
  isTrouble?: boolean;
}

/** One section of one relay. */
export class Section {
  private rows: Promise<SectionRow[]> | undefined;
  private readAt = 0;

  constructor(
    private readonly endpoint: Endpoint,
    private readonly name: SectionName,
  ) {}

  /** The rows, as they are or were a moment ago. Never rejects: a failure is a row. */
  read(now: number): Promise<SectionRow[]> {
    if (this.rows === undefined || now - this.readAt > FRESH_MS) {
      this.readAt = now;
      const asked = this.name === 'failed' ? this.failed(now) : this.running(now);
      this.rows = asked.catch((error: unknown) => [
        sentence(error instanceof Error ? error.message : String(error), true),
      ]);
    }
    return this.rows;
  }

  private async failed(now: number): Promise<SectionRow[]> {
    const { tasks, kept } = await this.endpoint.json(FailedTasks, '/relay/v1/tasks?state=failed');
    if (!kept) return [sentence('This relay keeps no failed tasks: its operator can switch on [post_mortem].')];
    if (tasks.length === 0) return [sentence('No task has failed.')];
    return tasks.map((task) => rowOfFailed(task, now));
  }

  private async running(now: number): Promise<SectionRow[]> {
    const { tasks } = await this.endpoint.json(RunningTasks, '/relay/v1/tasks');
    const shown = tasks.filter((task) => task.breakpoint === null);
    return shown.length === 0 ? [sentence('No task runs.')] : shown.map((task) => rowOfRunning(task, now));
  }
}

function sentence(text: string, isTrouble = false): SectionRow {
  return { label: oneLine(text, 500), description: '', isTrouble };
}

const labelOf = (task: FailedTask | RunningTask) =>
  oneLine(task.rank === null ? task.name : `${task.name} rank ${task.rank}`, MAX_TEXT);

export function rowOfFailed(task: FailedTask, now: number): SectionRow {
  const location = task.location === null ? '' : `${fileName(task.location.file)}:${task.location.line}`;
  const parts = [task.exception, location, `${briefSpan(now / 1000 - task.failed)} ago`];
  const description = oneLine(parts.filter(Boolean).join(' · '), MAX_TEXT);
  return { label: labelOf(task), description, failed: task };
}

export function rowOfRunning(task: RunningTask, now: number): SectionRow {
  const runs = task.started === null ? 'runs' : `runs for ${briefSpan(now / 1000 - task.started)}`;
  const description = oneLine([runs, task.node_ip ?? ''].filter(Boolean).join(' · '), MAX_TEXT);
  return { label: labelOf(task), description, running: task };
}
