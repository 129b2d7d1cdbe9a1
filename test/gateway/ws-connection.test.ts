import { connectionContract } from '../contract/connection.contract.ts';
import { startWsFixture } from './support/ws-fixture.ts';

connectionContract('ws', startWsFixture);
