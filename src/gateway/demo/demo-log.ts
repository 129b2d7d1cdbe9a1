/** What happened, as a table that grows line by line, and the verdict under it. */

/** `colour` is for terminals whose user has not set NO_COLOR. */
export type DemoStyle = 'plain' | 'colour';

export interface DemoEvent {
  /** Since the demo began. */
  readonly atMs: number;
  readonly who: string;
  readonly what: string;
  /** From the write on one side to the sight of it on the other; `null` where nothing crossed. */
  readonly latencyMs: number | null;
}

type Ink = 'dim' | 'bold' | 'cyan' | 'magenta' | 'yellow' | 'green' | 'red';

const SGR: Readonly<Record<Ink, string>> = {
  bold: '1',
  dim: '2',
  red: '31',
  green: '32',
  yellow: '33',
  magenta: '35',
  cyan: '36',
};
const WHO_WIDTH = 8;
const WHAT_WIDTH = 58;
const TIME_WIDTH = 8;
const LATENCY_WIDTH = 9;
const LIST_WIDTH = 38;

export class DemoLog {
  readonly events: DemoEvent[] = [];
  readonly #write: (text: string) => void;
  readonly #style: DemoStyle;
  readonly #nowMs: () => number;
  readonly #startMs: number;

  constructor(write: (text: string) => void, style: DemoStyle, nowMs: () => number) {
    this.#write = write;
    this.#style = style;
    this.#nowMs = nowMs;
    this.#startMs = nowMs();
  }

  title(where: string): void {
    this.#line('');
    this.#line(`  ${this.#ink('bold', 'Tidegate')}  two clients, one list, real sockets`);
    this.#line(`  ${this.#ink('dim', where)}`);
    this.#line('');
    const head = `${'time'.padStart(TIME_WIDTH)}  ${'who'.padEnd(WHO_WIDTH)}${'what'.padEnd(WHAT_WIDTH)}${'latency'.padStart(LATENCY_WIDTH)}`;
    this.#line(this.#ink('dim', `  ${head}`));
  }

  event(who: string, what: string, latencyMs: number | null = null): void {
    const atMs = this.#nowMs() - this.#startMs;
    this.events.push({ atMs, who, what, latencyMs });
    const time = this.#ink('dim', `${(atMs / 1_000).toFixed(2)} s`.padStart(TIME_WIDTH));
    const name = this.#ink(inkOf(who), who.padEnd(WHO_WIDTH));
    const text = what.padEnd(WHAT_WIDTH);
    const latency = latencyMs === null ? '' : this.#ink('bold', formatMs(latencyMs).padStart(LATENCY_WIDTH));
    this.#line(`  ${time}  ${name}${text}${latency}`.trimEnd());
  }

  /** The two lists beside each other. */
  lists(heads: readonly [string, string], left: readonly string[], right: readonly string[]): void {
    this.#line('');
    this.#line(`  ${this.#ink('cyan', heads[0].padEnd(LIST_WIDTH))}${this.#ink('magenta', heads[1])}`);
    for (let at = 0; at < Math.max(left.length, right.length); at++) {
      this.#line(`  ${(left[at] ?? '').padEnd(LIST_WIDTH)}${right[at] ?? ''}`.trimEnd());
    }
  }

  verdict(outcome: 'converged' | 'failed', text: string): void {
    const word = outcome === 'converged' ? this.#ink('green', 'CONVERGED') : this.#ink('red', 'FAILED');
    this.#line('');
    this.#line(`  ${word}  ${text}`);
    this.#line('');
  }

  #line(text: string): void {
    this.#write(`${text}\n`);
  }

  #ink(ink: Ink, text: string): string {
    return this.#style === 'plain' ? text : `\u001b[${SGR[ink]}m${text}\u001b[0m`;
  }
}

function inkOf(who: string): Ink {
  switch (who) {
    case 'ada':
      return 'cyan';
    case 'ben':
      return 'magenta';
    case 'server':
      return 'yellow';
    default:
      return 'dim';
  }
}

export function formatMs(durationMs: number): string {
  return `${durationMs.toFixed(durationMs < 100 ? 1 : 0)} ms`;
}
