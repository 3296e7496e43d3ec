// VS Code's window, as a user works in it.

import { join } from 'node:path';

import { pictures, until, wait } from './scene.mjs';

export const step = (what) => console.log(`${new Date().toISOString().slice(11, 19)}  ${what}`);

export class Workbench {
  constructor(page) {
    this.page = page;
  }

  picture(name) {
    return this.page.screenshot({ path: join(pictures, `${name}.png`) });
  }

  async type(text) {
    await this.page.keyboard.type(text);
    await wait(400);
    await this.page.keyboard.press('Enter');
  }

  /** The row of the side bar that has `text`. */
  async row(text) {
    return until(`a row "${text}"`, async () => {
      for (const one of await this.page.$$('.monaco-list-row')) {
        if ((await one.evaluate((element) => element.textContent)).includes(text)) return one;
      }
    });
  }

  /** Presses the button `label` of the row that has `text`. */
  async press(text, label) {
    await until(`${label} of ${text}`, async () => {
      try {
        // The list is drawn anew when something changes.
        const found = await this.row(text);
        await found.hover();
        await (await found.$(`a[aria-label="${label}"]`)).click();
        return true;
      } catch {
        return false;
      }
    });
  }

  /** Chooses `label` in the menu of the row that has `text`. */
  async choose(text, label) {
    await until(`${label} of ${text}`, async () => {
      try {
        await (await this.row(text)).click({ button: 'right' });
        const selector = `>>> .monaco-menu .action-label[aria-label="${label}"]`;
        const item = await this.page.waitForSelector(selector, { timeout: 3_000 });
        // A menu that has just opened takes no click.
        await item.hover();
        await this.page.keyboard.press('Enter');
        await this.page.waitForSelector(selector, { hidden: true, timeout: 2_000 });
        return true;
      } catch {
        await this.page.keyboard.press('Escape');
        return false;
      }
    });
  }

  /** A stop shows the view "Run and Debug" instead. */
  async openSideBar() {
    const icon = await this.page.waitForSelector('.activitybar .action-item:has([aria-label^="Ray"].action-label)', {
      timeout: 60_000,
    });
    if (!(await icon.evaluate((element) => element.classList.contains('checked')))) await icon.click();
  }

  /** The number of the line that the debugger shows as the current one. */
  async lineOfEditor() {
    return this.page.evaluate(() => {
      const glyph = document.querySelector('.monaco-editor .codicon-debug-stackframe');
      if (glyph === null) return undefined;
      const top = glyph.getBoundingClientRect().top;
      const numbers = [...document.querySelectorAll('.monaco-editor .line-numbers')];
      return numbers.find((one) => Math.abs(one.getBoundingClientRect().top - top) < 5)?.textContent.trim();
    });
  }

  /** The text of the Debug Console. */
  async console() {
    const rows = await this.page.$$eval('.repl .monaco-list-row', (rows) => rows.map((row) => row.textContent));
    return rows.join('\n');
  }

  /** Adds the relay at the local `port`, with a token, in an empty side bar. */
  async addRelay(port, token) {
    await (await this.page.waitForSelector('.pane-body .monaco-button')).click();
    await this.page.waitForSelector('.quick-input-list .monaco-list-row');
    await this.page.keyboard.press('Enter');
    await wait(500);
    await this.type(`127.0.0.1:${port}`);
    await this.page.waitForSelector('text/Enter a token');
    await this.page.keyboard.press('Enter');
    await wait(1_000);
    await this.type(token);
  }
}

/** Runs `steps`, and ends what was started. With a picture of where they failed. */
export async function play(scene, workbench, steps) {
  try {
    await steps();
  } catch (error) {
    await workbench.picture('failed');
    console.error(error);
    process.exitCode = 1;
  } finally {
    await scene.stop();
  }
  // With it ends what was started.
  process.exit();
}
