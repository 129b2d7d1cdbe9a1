/** The manual clock for tests on real sockets: time stands still, turns are those of the event loop. */
import { ManualClock } from '../../support/manual-clock.ts';

export class SocketClock extends ManualClock {
  override nextTurn(run: () => void): void {
    setImmediate(run);
  }
}
