// SPDX-License-Identifier: MIT
//
// What every view is told: which trace, recording and model it is about, and what the trace holds.
import type {Row, Session} from './data';

export interface Info {
	recordings: Row[];
	models: Row[];
	layers: Row[];
	processes: Row[];
	devices: Row[];
	rules: Row[];
	attributes: Row[];
	session: Row[];
	diagnostics: Row[];
}

export interface ViewProps {
	session: Session;
	trace: number;
	recording: number;
	model: number;
	info: Info;
	holds: Record<string, boolean>;
}
