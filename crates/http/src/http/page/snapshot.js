// The stack of each thread of a task with source and variables, the innermost frame first.

import { highlightedLines } from './python.js';
import { fileName, make } from './text.js';
import { shown } from './value.js';

/** The source around the current line of a frame. */
function source(frame) {
  if (!frame.lines?.length) return frame.source ? make('pre', { tabindex: '0', 'aria-label': 'Source' }, ...highlightedLines([frame.source])[0]) : null;
  const width = String(frame.first + frame.lines.length).length;
  const lines = highlightedLines(frame.lines).map((parts, at) => {
    const number = frame.first + at;
    const isCurrent = number === frame.line;
    const prefix = make('span', { class: 'py-number-of-line' }, `${isCurrent ? '→' : ' '} ${String(number).padStart(width)}  `);
    return make(isCurrent ? 'mark' : 'span', { class: 'source-line' }, prefix, ...parts, '\n');
  });
  return make('pre', { class: 'source', tabindex: '0', 'aria-label': `Source around line ${frame.line}` }, ...lines);
}

/** What is inside of a variable by its paths, such as `self.loss`, without what has parts itself. */
const leaves = (inside) => (inside ?? []).flatMap((one) => (one.inside ? leaves(one.inside) : [one]));

/** The value of a variable, and what is inside of it. */
function value({ value: text, inside }) {
  const found = leaves(inside);
  if (found.length === 0) return make('td', {}, shown(text ?? ''));
  const item = ({ name, value: part }) => make('li', {}, make('span', { class: 'key' }, name), ' ', shown(part));
  const word = found.length === 1 ? '1 value inside' : `${found.length} values inside`;
  return make('td', {}, shown(text ?? ''), make('details', {}, make('summary', { class: 'hint' }, word), make('ul', { class: 'parts' }, ...found.map(item))));
}

/** A table of `variables`, each with `name`, `type` and `value`. */
function table(variables, label) {
  if (!variables?.length) return null;
  const head = make('tr', {}, ...['Variable', 'Type', 'Value'].map((word) => make('th', { scope: 'col' }, word)));
  const rows = variables.map((one) => make('tr', {}, make('th', { scope: 'row' }, one.name), make('td', { class: 'type' }, one.type ?? ''), value(one)));
  return make('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': label }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
}

function frames(list, opensFirst) {
  return [...(list ?? [])].reverse().map((frame, at) => {
    const where = make('span', { class: 'place', title: frame.file }, frame.line ? `${fileName(frame.file)}:${frame.line}` : frame.file);
    const title = make('summary', {}, make('span', { class: 'name' }, frame.function), ' ', where);
    return make('details', { class: 'frame', open: opensFirst && at === 0 }, title, source(frame), table(frame.variables, `Variables of ${frame.function}`));
  });
}

/** The raised exception: its first line, and the whole text if there is more. */
function raised(exception) {
  const [first, ...rest] = exception.trim().split('\n');
  const all = make('details', {}, make('summary', {}, 'All of it'), make('pre', { tabindex: '0', 'aria-label': 'The exception' }, exception));
  return make('div', { class: 'trouble' }, make('p', {}, `Raised ${first}`), rest.length > 0 ? all : null);
}

/** The element that shows `threads` of a snapshot. */
export function stacks(threads) {
  if (!threads.length) return make('p', { class: 'none' }, 'No thread waits there.');
  const all = threads.map((thread) => {
    const parts = threads.length > 1 ? [make('h3', {}, thread.frames.length > 0 ? `Thread ${thread.name}` : thread.name)] : [];
    if (thread.exception) parts.push(raised(thread.exception), ...frames(thread.raised, true));
    if (thread.exception && thread.frames.length > 0) parts.push(make('h3', {}, 'Where that was handed to the debugger'));
    parts.push(...frames(thread.frames, !thread.exception));
    return make('div', { class: 'thread' }, ...parts);
  });
  return make('div', {}, ...all);
}
