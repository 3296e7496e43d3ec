// The one dialog of the page: a question, what has to be filled in for it, and two answers.

import { find, make, write } from './text.js';

/** Asks `question`, with `field` below it; whether `yes`, the word of the button, was chosen. */
export function asked(question, yes, field) {
  const dialog = find('question');
  write(find('asked'), question);
  write(find('yes'), yes);
  find('field').replaceChildren(...(field ? [field] : []));
  dialog.returnValue = 'no';
  dialog.showModal();
  field?.querySelector('input, select')?.focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}

/** A labelled field for a question: the `control` with what it is for, and a hint. */
export function field(word, control, hint) {
  return make('div', { class: 'field' }, make('label', {}, word, ' ', control), hint ? make('p', { class: 'hint' }, hint) : null);
}
