/**
 * Single flight of page builds in this process: rounds that need the same page at the same time share one build (§5.1,
 * architecture §5). One instance per gateway.
 *
 * A round waits for another's build only while it holds neither a snapshot nor a claim of its own. So readers are never
 * used up by waiters, and two rounds never wait for each other.
 */
import type { SegmentKey } from '../../storage/segments.ts';
import type { BuiltPage, SegmentPage } from './segment-page.ts';

interface Flight {
  /** `null`: the builder gave up, somebody else may try. Never rejects. */
  readonly page: Promise<SegmentPage | null>;
}

/** What a lookup came to: a page, the duty to build it, or somebody else's build that was not waited for. */
export type SharedBuild =
  | { readonly kind: 'page'; readonly page: SegmentPage }
  | { readonly kind: 'claimed'; readonly claim: BuildClaim }
  | { readonly kind: 'busy' };

export interface BuildLookup {
  readonly key: SegmentKey;
  /** Asked under the claim, so that the store is asked once however many rounds look. */
  readonly find: () => Promise<SegmentPage | null>;
  /** `skip` for a round that holds a claim already. */
  readonly whenBusy: 'wait' | 'skip';
}

/** The right and duty to build one page. Whoever holds it must end it, in one way or the other. */
export class BuildClaim {
  readonly key: SegmentKey;
  readonly #settle: (page: SegmentPage | null) => void;
  readonly #release: () => void;
  #open = true;

  constructor(key: SegmentKey, settle: (page: SegmentPage | null) => void, release: () => void) {
    this.key = key;
    this.#settle = settle;
    this.#release = release;
  }

  /** Hands the page to all who wait. One that goes to the store stays shared until the store has it. */
  built(page: BuiltPage, use: 'inline' | 'external'): void {
    if (!this.#open) return;
    this.#open = false;
    this.#settle(page);
    if (use === 'inline') this.#release();
    else page.stored().then(this.#release, this.#release);
  }

  /** The store had it. */
  found(page: SegmentPage): void {
    this.#end(page);
  }

  abandon(): void {
    this.#end(null);
  }

  #end(page: SegmentPage | null): void {
    if (!this.#open) return;
    this.#open = false;
    this.#release();
    this.#settle(page);
  }
}

export class SegmentBuilds {
  readonly #flights = new Map<string, Flight>();

  /** Pages being built or on their way to the store. */
  get inFlight(): number {
    return this.#flights.size;
  }

  async lookup({ key, find, whenBusy }: BuildLookup): Promise<SharedBuild> {
    for (;;) {
      const claim = this.begin(key);
      if (claim !== null) return findUnder(claim, find);
      if (whenBusy === 'skip') return { kind: 'busy' };
      const page = await this.#flights.get(flightId(key))!.page;
      if (page !== null) return { kind: 'page', page };
    }
  }

  /** Claims the page unless somebody has it. */
  begin(key: SegmentKey): BuildClaim | null {
    const id = flightId(key);
    if (this.#flights.has(id)) return null;
    let settle: (page: SegmentPage | null) => void = () => undefined;
    const page = new Promise<SegmentPage | null>((resolve) => {
      settle = resolve;
    });
    this.#flights.set(id, { page });
    return new BuildClaim(key, settle, () => this.#flights.delete(id));
  }
}

async function findUnder(claim: BuildClaim, find: BuildLookup['find']): Promise<SharedBuild> {
  try {
    const page = await find();
    if (page === null) return { kind: 'claimed', claim };
    claim.found(page);
    return { kind: 'page', page };
  } catch (error) {
    claim.abandon();
    throw error;
  }
}

function flightId(key: SegmentKey): string {
  return JSON.stringify([
    key.partition,
    key.logEpoch,
    key.table,
    key.schemaVersion,
    key.scopeDigest,
    key.paramsDigest,
    key.asOfCommitSeq,
    key.rowCursor,
    key.rowsMax,
  ]);
}
