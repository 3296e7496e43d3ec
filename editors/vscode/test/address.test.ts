// The address of a relay, as a user types it.

import { describe, expect, it } from 'vitest';

import { addressText, BadAddress, parseAddress } from '../src/relay/address.js';

describe('an address', () => {
  it.each([
    ['127.0.0.1:5678', 'http://127.0.0.1:5678'],
    ['  relay:1234 \n', 'http://relay:1234'],
    ['relay', 'http://relay:5678'],
    ['http://relay', 'http://relay:5678'],
    ['http://relay/', 'http://relay:5678'],
    ['http://relay/ray//', 'http://relay:5678/ray'],
    ['relay:1/ray', 'http://relay:1/ray'],
    ['[::1]', 'http://[::1]:5678'],
    ['[::1]:99', 'http://[::1]:99'],
    ['https://relay', 'https://relay'],
    ['https://relay:443', 'https://relay'],
    ['https://relay:8443/ray/', 'https://relay:8443/ray'],
    ['HTTPS://Relay.Example.COM', 'https://relay.example.com'],
    ['http://relay:8080', 'http://relay:8080'],
    ['http://relay80', 'http://relay80:5678'],
  ])('%j is %s', (text, expected) => {
    expect(addressText(parseAddress(text))).toBe(expected);
  });

  it.each(['127.0.0.1:5678', 'relay', 'https://relay', 'http://relay/ray/', '[::1]', 'https://relay:8443/ray'])(
    '%s is the same after it was saved',
    (text) => {
      const url = parseAddress(text);
      expect(parseAddress(addressText(url)).href).toBe(url.href);
    },
  );

  it('keeps port 80 if the user writes it', () => {
    for (const text of ['http://relay:80', 'http://relay:80/ray', 'relay:80', 'http://[::1]:80']) {
      expect(parseAddress(text).port, text).toBe('');
    }
  });

  // addressText drops the port 80, and parseAddress then adds 5678.
  it('keeps port 80 after it was saved', () => {
    expect(parseAddress(addressText(parseAddress('http://relay:80'))).port).not.toBe('5678');
  });

  // The check for :80 distinguishes upper and lower case.
  it('keeps port 80 after an upper-case scheme', () => {
    expect(parseAddress('HTTP://relay:80').port).toBe('');
  });

  // href keeps "?" and "#" even where nothing follows.
  it.each(['http://relay/?', 'http://relay/#'])('%s loses its last character', (text) => {
    expect(addressText(parseAddress(text))).toBe('http://relay:5678');
  });

  it.each([
    '',
    '   ',
    'http://',
    'http:// relay',
    'relay:70000',
    'relay:port',
    'https:relay',
    'ws://relay',
    'file:///etc/passwd',
    'javascript://relay/%0aalert(1)',
    'vscode://relay',
    'http://relay/?token=x',
    'http://relay/#8gcg2dnt',
    'http://[::1',
  ])('%j is refused', (text) => {
    expect(() => parseAddress(text)).toThrow(BadAddress);
  });

  it.each(['http://user@relay', 'http://user:secret@relay', 'https://:secret@relay', 'user:secret@relay:5678'])(
    '%s is refused because it has a credential',
    (text) => {
      expect(() => parseAddress(text)).toThrow(/Leave out user name and password/);
    },
  );

  it('does not show a password in the error', () => {
    for (const text of ['http://user:secret@relay', 'http://user:secret@relay:70000']) {
      expect(() => parseAddress(text)).toThrow(/^(?!.*secret)/);
    }
  });
});
