// SPDX-License-Identifier: MIT
//
// How fast the page draws, as its tests and bench/bench_viewer.mjs ask it.

// What each of n frames took, in milliseconds: every frame has another address, in which RANGE is a
// stretch of time of the same length, a step further on.
export async function pan(page, address, {first, step, length, n}) {
	return page.evaluate(async ([template, from, by, span, count]) => {
		const times = [];
		let before = performance.now();
		for (let i = 0; i < count; i++) {
			const start = from + i * by;
			history.replaceState(null, '', template.replace('RANGE', `${start}~${start + span}`));
			dispatchEvent(new HashChangeEvent('hashchange'));
			await new Promise(requestAnimationFrame);
			times.push(performance.now() - before);
			before = performance.now();
		}
		return times;
	}, [address, first, step, length, n]);
}

// Frames a second, of what pan() says.
export const fps = (times) => 1000 / (times.reduce((sum, time) => sum + time, 0) / times.length);

// The windows that are drawn while the heatmap plays for two seconds, and how many a second.
export async function plays(page) {
	await page.getByRole('button', {name: 'Play'}).click();
	const played = await page.evaluate(async () => {
		const told = document.querySelector('.player > span');
		const begin = performance.now();
		let n = 0;
		for (let last = ''; performance.now() - begin < 2000; await new Promise(requestAnimationFrame))
			if (told.textContent !== last) {
				last = told.textContent;
				n++;
			}
		return {n, fps: (n * 1000) / (performance.now() - begin)};
	});
	await page.getByRole('button', {name: 'Pause'}).click();
	return played;
}
