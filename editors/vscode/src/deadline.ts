// Waits with a deadline.

/** What `promise` resolves to; rejects with `late` after `milliseconds`. */
export async function within<T>(promise: PromiseLike<T>, milliseconds: number, late: Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late), milliseconds);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
