// Where a task stands and what its variables hold: the stack of each thread that waits, the innermost frame first.

import { make } from './text.js';

/** The source around the line where a frame stands. */
function source(frame) {
  if (!frame.lines?.length) return frame.source ? make('pre', { tabindex: '0', 'aria-label': 'Source' }, frame.source) : null;
  const width = String(frame.first + frame.lines.length).length;
  const shown = make('pre', { class: 'source', tabindex: '0', 'aria-label': `Source around line ${frame.line}` });
  frame.lines.forEach((text, at) => {
    const number = frame.first + at;
    const here = number === frame.line;
    const line = `${here ? '→' : ' '} ${String(number).padStart(width)}  ${text}\n`;
    shown.append(here ? make('mark', {}, line) : make('span', {}, line));
  });
  return shown;
}

function variables(frame) {
  if (!frame.variables?.length) return null;
  const head = make('tr', {}, ...['Variable', 'Type', 'Value'].map((word) => make('th', { scope: 'col' }, word)));
  const rows = frame.variables.map(({ name, type, value }) => make('tr', {}, make('th', { scope: 'row' }, name), make('td', {}, type ?? ''), make('td', { class: 'value' }, value)));
  return make('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': `Variables of ${frame.function}` }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
}

function frames(list, opensFirst) {
  return [...(list ?? [])].reverse().map((frame, at) => {
    const where = make('span', { class: 'place' }, `${frame.file}:${frame.line}`);
    const title = make('summary', {}, make('span', { class: 'name' }, frame.function), ' ', where);
    return make('details', { class: 'frame', open: opensFirst && at === 0 }, title, source(frame), variables(frame));
  });
}

/** The element that shows `threads`, as the relay tells them. */
export function stacks(threads) {
  if (!threads.length) return make('p', { class: 'none' }, 'No thread waits there.');
  const shown = threads.map((thread) => {
    const parts = [make('h4', {}, threads.length > 1 ? `Thread ${thread.name}` : 'Where it stands')];
    if (thread.exception) parts.push(make('p', { class: 'trouble' }, `Raised ${thread.exception}`), ...frames(thread.raised, true));
    if (thread.exception) parts.push(make('h4', {}, 'Where that was handed to the debugger'));
    parts.push(...frames(thread.frames, !thread.exception));
    return make('div', { class: 'thread' }, ...parts);
  });
  return make('div', {}, ...shown);
}
