// That tasks are paused, for a tab that is not looked at: in its title, its icon, and for who wants it on the desktop.

import { place, title } from './stop.js';
import { find } from './text.js';

const KEEP = 'ray-relay-notify';
/** Tasks that stop within so long are one notification, in milliseconds. */
const TOGETHER = 500;

/** Shows in title and icon that `total` are paused. */
export function counted(total) {
  document.title = total > 0 ? `(${total}) ray-relay` : 'ray-relay';
  const icon = total > 0 ? 'page/paused.svg' : 'page/icon.svg';
  if (find('icon').getAttribute('href') !== icon) find('icon').href = icon;
}

/** Notifications of the desktop, where the browser has them for this address and the person wants them. */
export class Desktop {
  /** `open(row)` shows the task of a notification that is clicked on. */
  constructor(open) {
    this.open = open;
    this.new = [];
    const box = find('notify');
    // A browser has none for an address that is neither loopback nor HTTPS.
    find('notifies').hidden = !('Notification' in window) || !isSecureContext;
    if (find('notifies').hidden) return;
    box.checked = sessionStorage.getItem(KEEP) === 'yes' && Notification.permission === 'granted';
    box.onchange = async () => {
      const allowed = box.checked && (await Notification.requestPermission()) === 'granted';
      box.checked = allowed;
      sessionStorage.setItem(KEEP, allowed ? 'yes' : 'no');
    };
  }

  /** `row` has just stopped. */
  appeared(row) {
    if (!find('notify').checked || document.hasFocus()) return;
    this.new.push(row);
    this.timer ??= setTimeout(() => this.show(), TOGETHER);
  }

  show() {
    const rows = this.new;
    [this.new, this.timer] = [[], null];
    const [first] = rows;
    const text = rows.length === 1 ? `${title(first)} is paused` : `${rows.length} tasks are paused`;
    const where = [place(first), `on ${first.node_ip}`].filter(Boolean).join(' ');
    const shown = new Notification(text, { body: rows.length === 1 ? where : `first ${title(first)} ${where}`, icon: 'page/paused.svg', tag: 'ray-relay' });
    shown.onclick = () => {
      focus();
      this.open(first);
      shown.close();
    };
  }
}
