import { createMemoryBusNetwork } from '../../../src/gateway/bus/memory.ts';
import { busContract } from '../../contract/bus.contract.ts';

busContract('memory', async () => {
  const network = createMemoryBusNetwork(() => undefined);
  return { join: async () => network.join(), close: async () => undefined };
});
