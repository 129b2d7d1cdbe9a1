/** One presence event, encoded once for all who hear of it. */
import { encodePresence, type PresenceKind } from '../../protocol/control.ts';

type Content = Parameters<typeof encodePresence>[0];

export class PresenceEvent {
  readonly #content: Content;
  #text: string | null = null;

  constructor(content: Content) {
    this.#content = content;
  }

  get scopeKey(): string {
    return this.#content.scopeKey;
  }

  get kind(): PresenceKind {
    return this.#content.kind;
  }

  get text(): string {
    this.#text ??= encodePresence(this.#content);
    return this.#text;
  }

  as(kind: PresenceKind): PresenceEvent {
    return kind === this.kind ? this : new PresenceEvent({ ...this.#content, kind });
  }
}
