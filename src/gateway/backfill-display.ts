/** What an operator sees of running backfills: bars on a terminal, a line per event otherwise. */
import progress, { type MultiBar, type SingleBar } from 'cli-progress';
import type { BackfillProgress, BackfillResult } from '../session/sync/backfill-request.ts';
import type { CliIo } from './cli-io.ts';

export interface BackfillStart {
  readonly partition: string;
  readonly name: string;
  /** Of the source tables. */
  readonly rows: number;
}

export interface BackfillLine {
  readonly update: (progress: BackfillProgress) => void;
  readonly end: (result: BackfillResult) => void;
}

export interface BackfillDisplay {
  start(backfill: BackfillStart): BackfillLine;
  note(text: string): void;
  close(): void;
}

export function createBackfillDisplay(io: CliIo, count: number): BackfillDisplay {
  return io.isTerminal ? new Bars(io) : new Lines(io, count);
}

/** Names may hold any character, those that move a cursor too. */
function titleOf({ partition, name }: Pick<BackfillStart, 'partition' | 'name'>): string {
  return `${JSON.stringify(partition)} ${JSON.stringify(name)}`;
}

const TIME_OPTIONS = { autopadding: true, autopaddingChar: '   ' };

/** Of a scan, as far as rows were counted; what is left to follow has a watermark and a head of its own. */
function timeLeft(
  { phase, observedRows, watermark, head, ratePerSecond }: BackfillProgress,
  rows: number,
): string {
  if (phase === 'activated') return 'done';
  const left = phase === 'scan' ? rows - observedRows : head - watermark;
  if (left <= 0) return 'almost done';
  if (ratePerSecond <= 0) return 'unknown time left';
  return `${progress.Format.TimeFormat(Math.ceil(left / ratePerSecond), TIME_OPTIONS, 1).trim()} left`;
}

function figuresOf(now: BackfillProgress, rows: number): string {
  const { observedRows, watermark, head, ratePerSecond } = now;
  const of = Math.max(rows, observedRows);
  return `${observedRows}/${of} rows, ${Math.round(ratePerSecond)}/s, watermark ${watermark} of ${head}, ${timeLeft(now, rows)}`;
}

class Bars implements BackfillDisplay {
  readonly #bars: MultiBar;
  readonly #io: CliIo;
  readonly #notes: string[] = [];

  constructor(io: CliIo) {
    this.#io = io;
    this.#bars = new progress.MultiBar({
      format: '{title} [{bar}] {phase} {figures}',
      stream: process.stdout,
      barsize: 20,
      hideCursor: true,
      clearOnComplete: false,
      autopadding: true,
    });
  }

  start(backfill: BackfillStart): BackfillLine {
    const { rows } = backfill;
    const shown = { title: titleOf(backfill), phase: 'claim', figures: '' };
    const bar: SingleBar = this.#bars.create(Math.max(rows, 1), 0, shown);
    return {
      update: (now) => {
        bar.setTotal(Math.max(rows, now.observedRows, 1));
        bar.update(now.observedRows, { phase: now.phase, figures: figuresOf(now, rows) });
      },
      end: ({ status, observedRows }) => {
        bar.update(status === 'activated' ? bar.getTotal() : observedRows, { phase: status });
        bar.stop();
      },
    };
  }

  note(text: string): void {
    this.#notes.push(text);
  }

  close(): void {
    this.#bars.stop();
    for (const text of this.#notes) this.#io.stderr(`${text}\n`);
  }
}

/** For logs: no more lines than one per phase and some in between. */
class Lines implements BackfillDisplay {
  readonly #io: CliIo;
  readonly #count: number;
  #started = 0;

  constructor(io: CliIo, count: number) {
    this.#io = io;
    this.#count = count;
  }

  start(backfill: BackfillStart): BackfillLine {
    const { rows } = backfill;
    const title = `${titleOf(backfill)} (${++this.#started} of ${this.#count})`;
    let phase = '';
    let nextAtRows = 0;
    this.#io.stdout(`${title}: begins, ${rows} source rows\n`);
    return {
      update: (now) => {
        if (now.phase === phase && now.observedRows < nextAtRows) return;
        phase = now.phase;
        nextAtRows = now.observedRows + Math.max(1, Math.ceil(rows / 10));
        this.#io.stdout(`${title}: ${phase}, ${figuresOf(now, rows)}\n`);
      },
      end: ({ status, observedRows, rowsWritten }) => {
        this.#io.stdout(
          `${title}: ${status}, ${observedRows} source rows seen, ${rowsWritten} rows written\n`,
        );
      },
    };
  }

  note(text: string): void {
    this.#io.stderr(`${text}\n`);
  }

  close(): void {
    // Each line was written when it was due.
  }
}
