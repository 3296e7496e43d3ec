// The dialog of the page: a question with an optional field and two answers.

import { find, make, write } from './text.js';

/** Resolves the promise of the open question. */
let resolveAnswer = () => {};

find('question').addEventListener('close', ({ currentTarget: dialog }) => {
  // The event comes late: if another question is open by then, it belongs to the previous one.
  if (!dialog.open) resolveAnswer(dialog.returnValue === 'yes');
});

/** Asks `question` with `field` below it, and resolves to whether the button `yes` was chosen. */
export function askToConfirm(question, yes, field) {
  const dialog = find('question');
  resolveAnswer(false);
  write(find('asked'), question);
  write(find('yes'), yes);
  find('field').replaceChildren(...(field ? [field] : []));
  dialog.returnValue = 'no';
  dialog.showModal();
  field?.querySelector('input, select')?.focus();
  return new Promise((resolve) => (resolveAnswer = resolve));
}

/** A labelled field of a question: the `control` with its label and a hint. */
export function field(word, control, hint) {
  return make('div', { class: 'field' }, make('label', {}, word, ' ', control), hint ? make('p', { class: 'hint' }, hint) : null);
}
