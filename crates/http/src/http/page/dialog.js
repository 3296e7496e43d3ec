// The one dialog of the page: a question, what has to be filled in for it, and two answers.

import { find, make, write } from './text.js';

/** What waits for the answer of the question that is open. */
let answered = () => {};

find('question').addEventListener('close', ({ currentTarget: dialog }) => {
  // The event comes a moment after the end: of a question that another one has followed by then, that is the wrong one's.
  if (!dialog.open) answered(dialog.returnValue === 'yes');
});

/** Asks `question`, with `field` below it; whether `yes`, the word of the button, was chosen. */
export function asked(question, yes, field) {
  const dialog = find('question');
  answered(false);
  write(find('asked'), question);
  write(find('yes'), yes);
  find('field').replaceChildren(...(field ? [field] : []));
  dialog.returnValue = 'no';
  dialog.showModal();
  field?.querySelector('input, select')?.focus();
  return new Promise((resolve) => (answered = resolve));
}

/** A labelled field for a question: the `control` with what it is for, and a hint. */
export function field(word, control, hint) {
  return make('div', { class: 'field' }, make('label', {}, word, ' ', control), hint ? make('p', { class: 'hint' }, hint) : null);
}
