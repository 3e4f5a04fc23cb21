// SPDX-License-Identifier: MIT
//
// A surface that takes the calls of a 2D canvas and keeps them as SVG: a chart that is drawn by one
// function is seen and taken along by the same code. It knows what the page's charts use and no more.
import {xml} from './export';
import {shown} from './format';

export type Surface = Pick<CanvasRenderingContext2D, 'fillStyle' | 'strokeStyle' | 'lineWidth' | 'font' | 'textAlign' | 'textBaseline'
	| 'globalAlpha' | 'fillRect' | 'strokeRect' | 'beginPath' | 'moveTo' | 'lineTo' | 'arc' | 'rect' | 'closePath' | 'stroke' | 'fill' | 'fillText'
	| 'measureText' | 'setLineDash' | 'save' | 'restore' | 'clip'> & {image: (image: HTMLCanvasElement, x: number, y: number, width: number, height: number) => void};

const round = (value: number) => String(Math.round(value * 100) / 100);

const anchors: Record<string, string> = {left: 'start', start: 'start', center: 'middle', right: 'end', end: 'end'};

// How far below the point text of this size begins.
const drops: Record<string, number> = {top: 0.8, hanging: 0.8, middle: 0.35, bottom: -0.2, alphabetic: 0, ideographic: -0.2};

interface Look {
	fillStyle: string;
	strokeStyle: string;
	lineWidth: number;
	font: string;
	textAlign: string;
	textBaseline: string;
	globalAlpha: number;
	dash: number[];
}

export class SvgSurface {
	private parts: string[] = [];
	private path: string[] = [];
	private look: Look = {fillStyle: '#000', strokeStyle: '#000', lineWidth: 1, font: '11px sans-serif', textAlign: 'left', textBaseline: 'alphabetic', globalAlpha: 1, dash: []};
	private kept: {look: Look; groups: number}[] = [];
	private groups = 0;
	private nClips = 0;
	private readonly measure = document.createElement('canvas').getContext('2d')!;

	constructor(private readonly width: number, private readonly height: number) {}

	get fillStyle(): string { return this.look.fillStyle; }
	set fillStyle(value: string | CanvasGradient | CanvasPattern) { this.look.fillStyle = typeof value === 'string' ? value : 'none'; }
	get strokeStyle(): string { return this.look.strokeStyle; }
	set strokeStyle(value: string | CanvasGradient | CanvasPattern) { this.look.strokeStyle = typeof value === 'string' ? value : 'none'; }
	get lineWidth(): number { return this.look.lineWidth; }
	set lineWidth(value: number) { this.look.lineWidth = value; }
	get font(): string { return this.look.font; }
	set font(value: string) { this.look.font = value; }
	get textAlign(): CanvasTextAlign { return this.look.textAlign as CanvasTextAlign; }
	set textAlign(value: CanvasTextAlign) { this.look.textAlign = value; }
	get textBaseline(): CanvasTextBaseline { return this.look.textBaseline as CanvasTextBaseline; }
	set textBaseline(value: CanvasTextBaseline) { this.look.textBaseline = value; }
	get globalAlpha(): number { return this.look.globalAlpha; }
	set globalAlpha(value: number) { this.look.globalAlpha = value; }

	private alpha(): string {
		return this.look.globalAlpha < 1 ? ` opacity="${round(this.look.globalAlpha)}"` : '';
	}

	private stroked(): string {
		const dash = this.look.dash.length ? ` stroke-dasharray="${this.look.dash.join(' ')}"` : '';
		return `fill="none" stroke="${xml(this.look.strokeStyle)}" stroke-width="${round(this.look.lineWidth)}"${dash}${this.alpha()}`;
	}

	fillRect(x: number, y: number, width: number, height: number): void {
		this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, width))}" height="${round(Math.max(0, height))}" fill="${xml(this.look.fillStyle)}"${this.alpha()}/>`);
	}

	strokeRect(x: number, y: number, width: number, height: number): void {
		this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, width))}" height="${round(Math.max(0, height))}" ${this.stroked()}/>`);
	}

	beginPath(): void { this.path = []; }
	moveTo(x: number, y: number): void { this.path.push(`M${round(x)} ${round(y)}`); }
	lineTo(x: number, y: number): void { this.path.push(`${this.path.length ? 'L' : 'M'}${round(x)} ${round(y)}`); }
	closePath(): void { this.path.push('Z'); }

	rect(x: number, y: number, width: number, height: number): void {
		this.path.push(`M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}Z`);
	}

	// Whole circles are all that is drawn.
	arc(x: number, y: number, radius: number): void {
		const r = round(radius);
		this.path.push(`M${round(x - radius)} ${round(y)}a${r} ${r} 0 1 0 ${round(2 * radius)} 0a${r} ${r} 0 1 0 ${round(-2 * radius)} 0Z`);
	}

	stroke(): void {
		if (this.path.length)
			this.parts.push(`<path d="${this.path.join('')}" ${this.stroked()}/>`);
	}

	fill(): void {
		if (this.path.length)
			this.parts.push(`<path d="${this.path.join('')}" fill="${xml(this.look.fillStyle)}"${this.alpha()}/>`);
	}

	fillText(text: string, x: number, y: number): void {
		const size = Number(/(\d+(?:\.\d+)?)px/.exec(this.look.font)?.[1] ?? 11);
		const weight = /^(?:bold|600)/.test(this.look.font) ? ' font-weight="600"' : '';
		this.parts.push(`<text x="${round(x)}" y="${round(y + size * (drops[this.look.textBaseline] ?? 0))}" font-size="${size}"${weight} text-anchor="${anchors[this.look.textAlign] ?? 'start'}" fill="${xml(this.look.fillStyle)}"${this.alpha()}>${xml(shown(text))}</text>`);
	}

	measureText(text: string): TextMetrics {
		this.measure.font = this.look.font;
		return this.measure.measureText(shown(text));
	}

	setLineDash(dash: Iterable<number>): void { this.look = {...this.look, dash: [...dash]}; }

	image(image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void {
		this.parts.push(`<image x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" preserveAspectRatio="none" image-rendering="pixelated" href="${image.toDataURL('image/png')}"/>`);
	}

	save(): void { this.kept.push({look: {...this.look}, groups: this.groups}); }

	restore(): void {
		const last = this.kept.pop();
		if (!last)
			return;
		for (; this.groups > last.groups; this.groups--)
			this.parts.push('</g>');
		this.look = last.look;
	}

	clip(): void {
		this.parts.push(`<clipPath id="clip${this.nClips}"><path d="${this.path.join('')}"/></clipPath><g clip-path="url(#clip${this.nClips++})">`);
		this.groups++;
	}

	text(title: string): string {
		return `<svg xmlns="http://www.w3.org/2000/svg" width="${round(this.width)}" height="${round(this.height)}" viewBox="0 0 ${round(this.width)} ${round(this.height)}" font-family="system-ui, sans-serif">\n`
			+ `<title>${xml(shown(title))}</title>\n${this.parts.join('\n')}\n${'</g>'.repeat(this.groups)}</svg>\n`;
	}
}

// A canvas of this size in CSS pixels, sharp on any screen, as such a surface.
export function canvasSurface(canvas: HTMLCanvasElement, width: number, height: number): Surface {
	const ratio = window.devicePixelRatio || 1;
	if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
		canvas.width = Math.round(width * ratio);
		canvas.height = Math.round(height * ratio);
		canvas.style.height = `${height}px`;
	}
	const context = canvas.getContext('2d')!;
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.setLineDash([]);
	context.globalAlpha = 1;
	context.lineWidth = 1;
	context.imageSmoothingEnabled = false;
	const own = CanvasRenderingContext2D.prototype;
	return Object.assign(context, {
		fillText: (text: string, x: number, y: number) => own.fillText.call(context, shown(text), x, y),
		measureText: (text: string) => own.measureText.call(context, shown(text)),
		image: (image: HTMLCanvasElement, x: number, y: number, w: number, h: number) => context.drawImage(image, x, y, w, h),
	});
}
