// The licences of what is bundled, which the package has to contain.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Licences whose text in the package is enough. */
const ALLOWED = new Set([
  'MIT',
  'Apache-2.0',
  'ISC',
  'BSD-2-Clause',
  'BSD-3-Clause',
  '0BSD',
  'Unlicense',
  'Python-2.0',
]);

/** The folders of the packages among `inputs`, the files of esbuild's metafile. */
function packageFolders(inputs) {
  const folders = inputs.map((input) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input)?.[0]);
  return [...new Set(folders.filter((folder) => folder !== undefined))].sort();
}

async function licenceText(folder) {
  const name = (await readdir(folder)).find((file) => /^(licen[cs]e|copying)/i.test(file));
  return name === undefined ? '(The package has no file with its licence.)' : readFile(join(folder, name), 'utf8');
}

/** The text with the licence of each package. Throws where one has another kind of licence. */
export async function thirdPartyNotices(inputs) {
  const parts = [];
  for (const folder of packageFolders(inputs)) {
    const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    if (!ALLOWED.has(license))
      throw new Error(`${name} has the licence ${license}, which is not on the list in notices.mjs`);
    parts.push(`${name} ${version}, ${license}\n\n${(await licenceText(folder)).trim()}\n`);
  }
  return parts.join(`\n${'-'.repeat(80)}\n\n`);
}
