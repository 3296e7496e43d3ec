import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/*.test.ts'],
    // For a machine that is busy otherwise: nothing waits for this to pass.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
