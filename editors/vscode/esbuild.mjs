// Bundles the extension: `npm run build`.

import { copyFile, writeFile } from 'node:fs/promises';

import { build } from 'esbuild';

import { thirdPartyNotices } from './notices.mjs';

const minify = process.argv.includes('--minify');

// The package has to contain it.
await copyFile('../../LICENSE', 'LICENSE');

/** Kubernetes' client is 2 MB: a file of its own, loaded when a relay there is used. */
const kubernetesApart = {
  name: 'kubernetes-apart',
  setup({ onResolve }) {
    onResolve({ filter: /kubernetes\/relay\.js$/ }, ({ kind }) =>
      kind === 'dynamic-import' ? { path: './kubernetes.cjs', external: true } : undefined,
    );
  },
};

const { metafile } = await build({
  entryPoints: { extension: 'src/extension.ts', kubernetes: 'src/kubernetes/relay.ts' },
  plugins: [kubernetesApart],
  outdir: 'dist',
  outExtension: { '.js': '.cjs' },
  bundle: true,
  platform: 'node',
  format: 'cjs',
  target: 'node20',
  external: ['vscode', 'bufferutil', 'utf-8-validate'],
  minify,
  sourcemap: !minify,
  // Licences are in a file of their own.
  legalComments: 'none',
  metafile: true,
});

await writeFile('dist/THIRD-PARTY-NOTICES.txt', await thirdPartyNotices(Object.keys(metafile.inputs)));
