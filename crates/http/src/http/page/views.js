// The lists of the page as tabs with arrow keys.

import { find } from './text.js';

/** Makes `tabs` switch the elements they control; `onShow(id)` is called with the shown one. Returns a function that shows one. */
export function views(tabs, onShow) {
  const all = [...tabs.querySelectorAll('[role=tab]')];
  function show(tab) {
    for (const one of all) {
      const isShown = one === tab;
      one.setAttribute('aria-selected', String(isShown));
      one.tabIndex = isShown ? 0 : -1;
      find(one.getAttribute('aria-controls')).hidden = !isShown;
    }
    onShow(tab.getAttribute('aria-controls'));
  }
  tabs.addEventListener('click', (event) => {
    const tab = event.target.closest('[role=tab]');
    if (tab) show(tab);
  });
  tabs.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = all.indexOf(event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[(at + step + all.length) % all.length];
    show(next);
    next.focus();
  });
  return (id) => show(all.find((tab) => tab.getAttribute('aria-controls') === id));
}
