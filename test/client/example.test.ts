/** `examples/node-client`, as two people use it. */
import { PassThrough } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { runList } from '../../examples/node-client/main.ts';
import { createStaticTokens } from '../../src/gateway/auth.ts';
import { DEV_SCHEMA } from '../../src/gateway/dev-schema.ts';
import { DEV_TOKENS } from '../../src/gateway/dev-tokens.ts';
import { createGateway } from '../../src/gateway/gateway.ts';

class Terminal {
  readonly input = new PassThrough();
  text = '';
  readonly ended: Promise<void>;
  #notice: () => void = () => undefined;

  constructor(url: string, token: string) {
    this.ended = runList({
      url,
      token,
      input: this.input,
      print: (text) => {
        this.text += text;
        this.#notice();
      },
    });
  }

  type(line: string): void {
    this.text = '';
    this.input.write(`${line}\n`);
  }

  async shows(text: string): Promise<void> {
    while (!this.text.includes(text)) {
      await new Promise<void>((resolve) => {
        this.#notice = resolve;
      });
    }
  }
}

test('two terminals share a list, also after one was offline', async () => {
  const gateway = await createGateway({
    schema: DEV_SCHEMA,
    storage: { path: ':memory:' },
    ...createStaticTokens(DEV_TOKENS),
  });
  onTestFinished(() => gateway.close());
  const { url } = await gateway.listen({ port: 0 });
  const ada = new Terminal(url, 'dev-ada');
  const ben = new Terminal(url, 'dev-ben');
  await Promise.all([ada.shows('(live, 0 waiting)'), ben.shows('(live, 0 waiting)')]);

  ada.type('Buy milk');
  await ben.shows(' 1. [ ] Buy milk');
  ben.type('off');
  await ben.shows('(offline');
  ben.type('1');
  await ben.shows('~1. [x] Buy milk\n(offline, 1 waiting)');
  ada.type('1');
  await ada.shows(' 1. [x] Buy milk\n(live, 0 waiting)');
  ben.type('on');
  await ben.shows('not taken (sync.version_conflict); the server has "Buy milk"');

  ada.type('quit');
  ben.type('quit');
  await Promise.all([ada.ended, ben.ended]);
  expect(gateway.stats().state).toBe('running');
});
