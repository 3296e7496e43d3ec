// Which rows of the tree have to be drawn anew. Pure.
//
// VS Code keeps some memory for each row that it draws until its window is closed, so only rows that have changed are drawn anew.

/** A row as it is now: `text` is all that is shown of it. */
export interface Drawn {
  id: string;
  text: string;
  children: readonly Drawn[];
}

/** What VS Code was given for each row, by its id. */
export class Given {
  private readonly texts = new Map<string, string>();
  private readonly children = new Map<string, string>();

  /** The row is shown with `text`. */
  row(id: string, text: string): void {
    this.texts.set(id, text);
  }

  /** The rows below the row are those with the ids `children`. */
  below(id: string, children: readonly string[]): void {
    this.children.set(id, listOf(children));
  }

  /** The ids of the rows below `now` that differ from what was given, without those below one of them. Forgets rows that are gone. */
  changed(now: Drawn): string[] {
    const present = new Set<string>();
    const visit = (row: Drawn): string[] => {
      present.add(row.id);
      const below = row.children.flatMap(visit);
      const isOther = (given: Map<string, string>, current: string) =>
        given.has(row.id) && given.get(row.id) !== current;
      const ids = row.children.map((child) => child.id);
      return isOther(this.texts, row.text) || isOther(this.children, listOf(ids)) ? [row.id] : below;
    };
    const changed = visit(now);
    for (const given of [this.texts, this.children]) {
      for (const id of given.keys()) if (!present.has(id)) given.delete(id);
    }
    return changed;
  }
}

const listOf = (ids: readonly string[]) => JSON.stringify(ids);
