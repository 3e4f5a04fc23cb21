// SPDX-License-Identifier: MIT
//
// Tokens as people read them. A trace has ids and no vocabulary; where they are bytes, as those of the
// built-in engine, they are text in UTF-8, in which a character may be of four tokens.

export interface TokenText {
	text: string; // what is shown of it; of a part of a character, the whole one
	part: number; // 0: a character or more by itself; else which part of it, from 1
	nParts: number;
}

const signs: Record<number, string> = {9: '\u21e5', 10: '\u21b5', 13: '\u240d', 32: '\u2423'};

const hex = (id: number) => `\\x${id.toString(16).padStart(2, '0')}`;

function byteText(id: number): string {
	return signs[id] ?? (id > 32 && id < 127 ? String.fromCharCode(id) : hex(id));
}

// Of how many bytes the character is that this one begins; 0: none begins so.
function lengthOf(byte: number): number {
	return byte < 0x80 ? 1 : byte >= 0xc2 && byte <= 0xdf ? 2 : byte >= 0xe0 && byte <= 0xef ? 3 : byte >= 0xf0 && byte <= 0xf4 ? 4 : 0;
}

const decoder = new TextDecoder('utf-8', {fatal: true});

function characterAt(tokens: Map<number, number>, position: number, n: number): string | null {
	const bytes = new Uint8Array(n);
	for (let i = 0; i < n; i++) {
		const byte = tokens.get(position + i);
		if (byte === undefined || byte < 0 || byte > 255)
			return null;
		bytes[i] = byte;
	}
	try {
		return decoder.decode(bytes);
	} catch {
		return null;
	}
}

// Ids by position. Without @areBytes each is its number.
export function tokenTexts(tokens: Map<number, number>, areBytes: boolean): Map<number, TokenText> {
	const texts = new Map<number, TokenText>();
	for (const [position, id] of [...tokens].sort((a, b) => a[0] - b[0])) {
		if (texts.has(position))
			continue;
		const n = areBytes && id >= 0x80 && id <= 255 ? lengthOf(id) : 1;
		const character = n > 1 ? characterAt(tokens, position, n) : null;
		if (character !== null)
			for (let i = 0; i < n; i++)
				texts.set(position + i, {text: character, part: i + 1, nParts: n});
		else
			texts.set(position, {text: !areBytes ? String(id) : id >= 0 && id <= 255 ? byteText(id) : `<${id}>`, part: 0, nParts: 1});
	}
	return texts;
}

export function describe(id: number | undefined, text: TokenText | undefined): string {
	if (id === undefined || !text)
		return 'no token recorded';
	return text.part > 0 ? `byte ${text.part} of ${text.nParts} of ${text.text}, token ${id}` : `token ${id}`;
}
