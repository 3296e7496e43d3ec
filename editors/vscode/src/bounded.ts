// Collections that forget their oldest elements.

/** Deletes the oldest elements of `all`, so that at most `most` remain. */
export function forgetOldest<K>(all: Set<K> | Map<K, unknown>, most: number): void {
  for (const oldest of all.keys()) {
    if (all.size <= most) break;
    all.delete(oldest);
  }
}
