// The address of a relay, as a user writes it.

/** Port of a relay whose URL names none. */
const RELAY_PORT = '5678';

export class BadAddress extends Error {}

/** Parses `text`: `https://HOST[:PORT][/PREFIX]`, `http://…`, or `HOST:PORT`. Throws a {@link BadAddress}. */
export function parseAddress(text: string): URL {
  const trimmed = text.trim();
  const whole = trimmed.includes('://') ? trimmed : `http://${trimmed}`;
  const url = URL.canParse(whole) ? new URL(whole) : undefined;
  const isAddress = url !== undefined && url.hostname !== '' && url.search === '' && url.hash === '';
  if (!isAddress || !/^https?:\/\//i.test(whole)) {
    throw new BadAddress('Write it as http://HOST:PORT, such as http://127.0.0.1:5678.');
  }
  url.search = url.hash = '';
  if (url.username !== '' || url.password !== '') {
    throw new BadAddress('Leave out user name and password. A token is asked for next.');
  }
  // URL drops a port that is the scheme's own, so look at the text.
  const saysPort80 = /^http:\/\/[^/]*:80([/?#]|$)/i.test(whole);
  if (url.protocol === 'http:' && url.port === '' && !saysPort80) url.port = RELAY_PORT;
  url.pathname = url.pathname.replace(/\/+$/, '');
  return url;
}

/** Whether what is sent to `url` can be read on its way: no TLS, and not this machine. */
export function isPlain(url: URL): boolean {
  const isHere = url.hostname === 'localhost' || url.hostname === '[::1]' || /^127(\.\d+){3}$/.test(url.hostname);
  return url.protocol === 'http:' && !isHere;
}

/** `url` as text that {@link parseAddress} takes for the same, without a slash at its end. */
export function addressText(url: URL): string {
  const port = url.protocol === 'http:' && url.port === '' ? ':80' : '';
  return `${url.protocol}//${url.host}${port}${url.pathname.replace(/\/+$/, '')}`;
}
