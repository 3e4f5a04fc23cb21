// SPDX-License-Identifier: MIT
//
// Keys by their position on the keyboard (event.code), so that they lie together on every layout;
// what is printed on them is asked of the browser where it tells. Typing is never taken.

export function isTyping(event: KeyboardEvent): boolean {
	const target = event.target as HTMLElement;
	return target.matches('input:not([type=range]), textarea, select') || target.isContentEditable;
}

// Run what the key stands for; then nobody else gets it.
export function takeKeys(event: KeyboardEvent, keys: Record<string, () => unknown>): void {
	const action = keys[event.code];
	if (!action || event.ctrlKey || event.metaKey || event.altKey || isTyping(event))
		return;
	event.preventDefault();
	event.stopPropagation();
	action();
}

interface KeyboardMap {
	get(code: string): string | undefined;
}

export async function keyLabels(): Promise<(code: string) => string> {
	const keyboard = (navigator as unknown as {keyboard?: {getLayoutMap(): Promise<KeyboardMap>}}).keyboard;
	let map: KeyboardMap | undefined;
	try {
		map = await keyboard?.getLayoutMap();
	} catch {
		// Then the keys are named as on a US keyboard.
	}
	return (code) => (map?.get(code) ?? code.replace(/^(Key|Digit|Arrow)/, '').replace('Slash', '/')).toUpperCase();
}
