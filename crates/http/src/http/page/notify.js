// Shows paused tasks in the title and icon of the tab, and optionally as desktop notifications.

import { locationText, title } from './stop.js';
import { find } from './text.js';

const STORAGE_KEY = 'ray-relay-notify';
/** Tasks that stop within this time share one notification. */
const BATCH_DELAY_MS = 500;

/** Shows in title and icon that `total` tasks are paused. */
export function showCount(total) {
  document.title = total > 0 ? `(${total}) ray-relay` : 'ray-relay';
  const icon = total > 0 ? 'page/paused.svg' : 'page/icon.svg';
  if (find('icon').getAttribute('href') !== icon) find('icon').href = icon;
}

/** Desktop notifications, if the browser supports them here and the user enables them. */
export class Desktop {
  /** `open(row)` shows the task of a notification that is clicked on. */
  constructor(open) {
    this.open = open;
    this.new = [];
    const box = find('notify');
    // Browsers allow notifications only on loopback and over HTTPS.
    find('notifies').hidden = !('Notification' in window) || !isSecureContext;
    if (find('notifies').hidden) return;
    box.checked = sessionStorage.getItem(STORAGE_KEY) === 'yes' && Notification.permission === 'granted';
    box.onchange = async () => {
      const allowed = box.checked && (await Notification.requestPermission()) === 'granted';
      box.checked = allowed;
      sessionStorage.setItem(STORAGE_KEY, allowed ? 'yes' : 'no');
    };
  }

  /** `row` has just stopped. */
  appeared(row) {
    if (!find('notify').checked || document.hasFocus()) return;
    this.new.push(row);
    this.timer ??= setTimeout(() => this.show(), BATCH_DELAY_MS);
  }

  show() {
    const rows = this.new;
    [this.new, this.timer] = [[], null];
    const [first] = rows;
    const text = rows.length === 1 ? `${title(first)} is paused` : `${rows.length} tasks are paused`;
    const where = [locationText(first), `on ${first.node_ip}`].filter(Boolean).join(' ');
    const shown = new Notification(text, { body: rows.length === 1 ? where : `first ${title(first)} ${where}`, icon: 'page/paused.svg', tag: 'ray-relay' });
    shown.onclick = () => {
      focus();
      this.open(first);
      shown.close();
    };
  }
}
