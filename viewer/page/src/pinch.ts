// SPDX-License-Identifier: MIT
//
// What zooms a picture that lies along one axis: two fingers on a screen or on a trackpad, which a
// browser tells as a wheel with Ctrl. What lies under the fingers stays under them.

export interface Span {
	from: number;
	until: number;
}

// Fingers that are nearer to each other tell nothing.
const NEAREST = 8;

// How little and how much a picture shows.
export interface Limits {
	least: number;
	most: number;
}

const within = (length: number, {least, most}: Limits) => Math.max(least, Math.min(most, length));

// @at stays where it is, also where the limits are reached.
export function zoomed(span: Span, factor: number, at: number, limits: Limits): Span {
	const length = span.until - span.from;
	const next = within(length * factor, limits);
	const from = at - ((at - span.from) * next) / length;
	return {from, until: from + next};
}

// @before, @after: where two fingers are on a picture that begins at @left and is so wide.
export function pinched(span: Span, before: [number, number], after: [number, number], left: number, width: number, limits: Limits): Span {
	const apart = (at: [number, number]) => Math.max(NEAREST, Math.abs(at[0] - at[1]));
	const length = span.until - span.from;
	const next = within((length * apart(before)) / apart(after), limits);
	const held = span.from + (((before[0] + before[1]) / 2 - left) / width) * length;
	const from = held - (((after[0] + after[1]) / 2 - left) / width) * next;
	return {from, until: from + next};
}

// A trackpad tells small steps.
export const wheelFactor = (event: WheelEvent) => Math.exp(event.deltaY * (event.deltaMode === 1 ? 16 : 1) * (event.ctrlKey ? 0.01 : 0.002));

// The pointers that are down.
export class Fingers {
	private readonly at = new Map<number, number>();

	get n(): number {
		return this.at.size;
	}

	down(event: PointerEvent): void {
		this.at.set(event.pointerId, event.offsetX);
	}

	up(event: PointerEvent): void {
		this.at.delete(event.pointerId);
	}

	// Where both were and are; null: they are not two.
	move(event: PointerEvent): {before: [number, number]; after: [number, number]} | null {
		if (!this.at.has(event.pointerId))
			return null;
		const before = [...this.at.values()];
		this.at.set(event.pointerId, event.offsetX);
		return before.length === 2 ? {before: before as [number, number], after: [...this.at.values()] as [number, number]} : null;
	}
}
