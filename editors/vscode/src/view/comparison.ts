// What differs between paused ranks, as a page without scripts. Pure.

import * as v from 'valibot';

import { cutTo, oneLine } from '../text.js';
import { nullish } from '../relay/schema.js';

const Text = v.string();
const Members = v.array(v.number());

const Answer = v.object({ who: Text, text: Text, odd: v.fallback(v.boolean(), false), members: Members });
type Answer = v.InferOutput<typeof Answer>;

const Difference = v.object({
  what: Text,
  name: nullish(Text),
  frame: nullish(Text),
  answers: v.array(Answer),
});

const Same = v.object({
  what: Text,
  name: nullish(Text),
  frame: nullish(Text),
  text: v.fallback(Text, ''),
});

const Group = v.object({
  group: nullish(Text),
  differences: v.array(Difference),
  same: v.fallback(v.array(Same), []),
  noise: v.fallback(v.array(Same), []),
  not_compared: v.fallback(v.array(Same), []),
});
type Group = v.InferOutput<typeof Group>;

/** The answer to `/relay/v1/compare`. */
export const Comparison = v.object({
  members: v.array(
    v.object({
      number: nullish(v.number()),
      breakpoint: v.object({ id: Text, title: Text }),
      error: nullish(Text),
    }),
  ),
  groups: v.array(Group),
});
export type Comparison = v.InferOutput<typeof Comparison>;

/** Names of what is compared besides variables. */
const LABELS = new Map([
  ['exception', 'raised'],
  ['line', 'stopped at'],
  ['place', 'stopped in'],
  ['callers', 'was called by'],
]);

/** Longest text of a value. */
const MAX_VALUE = 2000;

/** The page. `title` is its heading. */
export function pageOfComparison(title: string, comparison: Comparison): string {
  const failed = comparison.members.filter((member) => member.error !== null);
  const compared = comparison.members.length - failed.length;
  const body = [
    `<h1>${escaped(title)}</h1>`,
    `<p>${compared === 1 ? '1 task' : `${compared} tasks`} compared. They stay paused.</p>`,
    ...comparison.groups.map((group) => htmlOfGroup(group, comparison.groups.length > 1)),
    ...(failed.length === 0 ? [] : ['<h2>Not inspected</h2>']),
    ...failed.map((one) => `<p>${escaped(one.breakpoint.title)}: ${escaped(one.error ?? '')}</p>`),
  ];
  // No script, no style, image or address but those of this page.
  const policy = "default-src 'none'; style-src 'unsafe-inline'";
  return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><title>${escaped(title)}</title><style>${STYLE}</style></head><body>${body.join('\n')}</body></html>`;
}

function htmlOfGroup(group: Group, isOneOfSeveral: boolean): string {
  const odd = oddOnes(group);
  const heading = group.group === null || !isOneOfSeveral ? '' : `<h2>${escaped(group.group)}</h2>`;
  const summary =
    odd.size === 0
      ? '<p>No rank is the odd one.</p>'
      : `<p class="summary">${[...odd].map(([who, names]) => `<b>${escaped(ranks(who))}</b> differs in ${escaped(names.join(', '))}`).join('; ')}.</p>`;
  const rows = group.differences.map(
    ({ what, name, frame, answers }) =>
      `<tr><th scope="row">${nameOf(what, name, frame)}</th><td>${htmlOfAnswers(answers)}</td></tr>`,
  );
  const table = rows.length === 0 ? '<p>Nothing differs.</p>' : `<table>${rows.join('')}</table>`;
  return [
    heading,
    summary,
    table,
    folded('alike', group.same),
    folded('different in every process', group.noise),
    folded('not compared', group.not_compared),
  ].join('');
}

/** The odd ranks, each with the names of what is odd there. */
function oddOnes(group: Group): Map<string, string[]> {
  const odd = new Map<string, string[]>();
  for (const { what, name, answers } of group.differences) {
    for (const answer of answers.filter((one) => one.odd)) {
      const names = odd.get(answer.who) ?? [];
      names.push(name ?? LABELS.get(what) ?? what);
      odd.set(answer.who, names);
    }
  }
  return odd;
}

function htmlOfAnswers(answers: Answer[]): string {
  const [first, ...rest] = answers.map(htmlOfAnswer);
  if (rest.length === 0) return first ?? '';
  const isOdd = answers[0]?.odd === true;
  const more = `${rest.length} more ${rest.length === 1 ? 'value' : 'values'}`;
  // Two values are read at a glance.
  if (rest.length === 1) return `${first}${rest[0]}`;
  return `${isOdd ? first : ''}<details><summary>${isOdd ? more : `${answers.length} values`}</summary>${isOdd ? '' : first}${rest.join('')}</details>`;
}

function htmlOfAnswer({ who, text, odd }: Answer): string {
  const mark = odd ? '<span class="mark" title="Differs from most">≠</span> ' : '';
  return `<div class="${odd ? 'odd' : 'most'}">${mark}<span class="who">${escaped(ranks(who))}</span> <code>${escaped(cutTo(text, MAX_VALUE))}</code></div>`;
}

function folded(word: string, all: v.InferOutput<typeof Same>[]): string {
  if (all.length === 0) return '';
  const rows = all.map(
    ({ what, name, frame, text }) =>
      `<tr><th scope="row">${nameOf(what, name, frame)}</th><td><code>${escaped(cutTo(text, MAX_VALUE))}</code></td></tr>`,
  );
  return `<details class="same"><summary>${all.length} ${word}</summary><table>${rows.join('')}</table></details>`;
}

function nameOf(what: string, name: string | null, frame: string | null): string {
  const place = frame === null ? '' : ` <span class="frame">${escaped(oneLine(frame, 200))}</span>`;
  return `${escaped(oneLine(name ?? LABELS.get(what) ?? what, 200))}${place}`;
}

/** `rank 3` or `ranks 0-2,4` for the relay's numbers; tasks without a rank have a name already. */
function ranks(who: string): string {
  if (!/^[\d,-]+$/.test(who)) return who;
  return /[,-]/.test(who) ? `ranks ${who}` : `rank ${who}`;
}

function escaped(text: string): string {
  const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? '');
}

const STYLE = `
body { padding: 0 1.5em 2em; line-height: 1.5; }
h1 { font-size: 1.3em; font-weight: 600; }
h2 { font-size: 1.1em; font-weight: 600; margin-top: 1.5em; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: 0.3em 1.5em 0.3em 0; border-bottom: 1px solid var(--vscode-widget-border, #8884); }
th { font-weight: normal; white-space: nowrap; }
code { white-space: pre-wrap; font-family: var(--vscode-editor-font-family); }
.frame, .who, .same, summary { color: var(--vscode-descriptionForeground); }
.summary { font-size: 1.1em; }
.odd { background: var(--vscode-diffEditor-removedTextBackground, #f001); padding: 0 0.4em; border-radius: 3px; }
.most { padding: 0 0.4em; }
.mark { color: var(--vscode-errorForeground); font-weight: 600; }
details { margin: 0.3em 0; }
summary { cursor: pointer; }
`;
