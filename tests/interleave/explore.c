/* SPDX-License-Identifier: MIT */
/*
 * The explorer: threads are coroutines that stop before each atomic operation; an execution is a
 * row of choices (which thread goes on, which message a load reads), and the executions are
 * walked depth first by running each from its start. See explore.h for the model.
 */
#include "tests/interleave/explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
	MAX_OBJECTS = 64,
	MAX_MESSAGES = 64,
	MAX_PLAIN = 64,
	MAX_DEPTH = 512,
	STACK_BYTES = 256 << 10,
	INIT = EXPLORE_MAX_THREADS, /* the thread that sets up and finishes */
	N_CLOCKS = EXPLORE_MAX_THREADS + 1,
};

/* What a thread knows: its oldest readable message of each object, and the others' clocks. */
struct view {
	uint32_t oldest[MAX_OBJECTS];
	uint32_t clock[N_CLOCKS];
};

struct message {
	uint64_t value;
	struct view view;
};

struct object {
	const void *address;
	uint32_t n_messages;
	uint32_t last_seq_cst;
	struct message messages[MAX_MESSAGES];
};

struct plain {
	const void *address;
	uint32_t writer;
	uint32_t write_clock; /* 0: nobody wrote */
	uint32_t read_clock[N_CLOCKS];
};

struct operation {
	const void *object;
	bool is_load;
};

struct thread {
	ucontext_t context;
	char *stack;
	struct view view;
	struct operation pending;
	bool is_done;
};

struct choice {
	uint32_t taken;
	uint32_t n_options;
};

static struct explorer {
	const struct explore_scenario *scenario;
	struct thread threads[EXPLORE_MAX_THREADS + 1];
	uint32_t current;
	ucontext_t main;
	struct object objects[MAX_OBJECTS];
	uint32_t n_objects;
	struct plain plain[MAX_PLAIN];
	uint32_t n_plain;
	struct choice choices[MAX_DEPTH];
	uint32_t depth;
	uint32_t n_choices;
	bool is_failed;
	char fault[256];
	enum explore_weaken weaken;
	bool (*is_meant)(const void *object);
} x;

void explore_weaken(enum explore_weaken what, bool (*is_meant)(const void *object))
{
	x.weaken = what;
	x.is_meant = is_meant;
}

/* Leave the running thread for good, or stay where the explorer itself runs. */
static void give_up(void)
{
	if (x.current != INIT)
		setcontext(&x.main);
}

void explore_fault(const char *format, ...)
{
	va_list arguments;

	if (!x.is_failed) {
		va_start(arguments, format);
		vsnprintf(x.fault, sizeof(x.fault), format, arguments);
		va_end(arguments);
	}
	x.is_failed = true;
	give_up();
}

/* A bound of the explorer itself: a scenario that is too large must not pass for a proof. */
static void limit(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "explore: the scenario needs more %s\n", what);
		abort();
	}
}

static uint32_t choose(uint32_t n_options)
{
	if (n_options <= 1)
		return 0;
	limit(x.depth < MAX_DEPTH, "choices");
	if (x.depth == x.n_choices)
		x.choices[x.n_choices++] = (struct choice){0, n_options};
	limit(x.choices[x.depth].n_options == n_options, "determinism");
	return x.choices[x.depth++].taken;
}

/* The next row of choices; false: all were taken. */
static bool advance(void)
{
	while (x.n_choices > 0) {
		struct choice *last = &x.choices[x.n_choices - 1];

		if (++last->taken < last->n_options)
			return true;
		x.n_choices--;
	}
	return false;
}

/* ---- the memory model ---- */

static void join(struct view *view, const struct view *other)
{
	for (uint32_t i = 0; i < x.n_objects; i++)
		if (other->oldest[i] > view->oldest[i])
			view->oldest[i] = other->oldest[i];
	for (uint32_t i = 0; i < N_CLOCKS; i++)
		if (other->clock[i] > view->clock[i])
			view->clock[i] = other->clock[i];
}

static uint32_t object_index(const void *address, uint64_t now)
{
	for (uint32_t i = 0; i < x.n_objects; i++)
		if (x.objects[i].address == address)
			return i;
	limit(x.n_objects < MAX_OBJECTS, "atomic objects");
	x.objects[x.n_objects].address = address;
	x.objects[x.n_objects].n_messages = 1;
	x.objects[x.n_objects].last_seq_cst = 0;
	x.objects[x.n_objects].messages[0] = (struct message){.value = now};
	return x.n_objects++;
}

static bool is_weakened(enum explore_weaken what, const void *object)
{
	return x.weaken == what && x.is_meant(object);
}

static bool acquires(memory_order order, const void *object)
{
	return order != memory_order_relaxed && order != memory_order_release &&
	       !is_weakened(EXPLORE_NO_ACQUIRE, object);
}

static bool releases(memory_order order, const void *object)
{
	return order != memory_order_relaxed && order != memory_order_acquire &&
	       !is_weakened(EXPLORE_NO_RELEASE, object);
}

/* Stop until the explorer lets this thread do the operation. */
static void await_turn(const void *object, bool is_load)
{
	struct thread *thread = &x.threads[x.current];

	if (x.current == INIT)
		return;
	thread->pending = (struct operation){object, is_load};
	swapcontext(&thread->context, &x.main);
}

static uint64_t read_message(uint32_t index, uint32_t message, memory_order order)
{
	struct object *object = &x.objects[index];
	struct view *view = &x.threads[x.current].view;

	view->oldest[index] = message;
	if (acquires(order, object->address))
		join(view, &object->messages[message].view);
	return object->messages[message].value;
}

/* @carried  The view of the message that a read-modify-write read; NULL: a plain store. */
static void append_message(uint32_t index, uint64_t value, memory_order order,
			   const struct view *carried)
{
	struct object *object = &x.objects[index];
	struct view *view = &x.threads[x.current].view;
	struct message *message = &object->messages[object->n_messages];

	limit(object->n_messages < MAX_MESSAGES, "messages");
	view->oldest[index] = object->n_messages;
	memset(message, 0, sizeof(*message));
	message->value = value;
	if (carried)
		message->view = *carried;
	message->view.oldest[index] = object->n_messages;
	if (releases(order, object->address)) {
		join(&message->view, view);
		view->clock[x.current]++;
	}
	if (order == memory_order_seq_cst)
		object->last_seq_cst = object->n_messages;
	object->n_messages++;
}

uint64_t explore_load(const void *address, uint64_t now, memory_order order)
{
	uint32_t index, oldest, newest;

	await_turn(address, true);
	index = object_index(address, now);
	oldest = x.threads[x.current].view.oldest[index];
	newest = x.objects[index].n_messages - 1;
	if (order == memory_order_seq_cst && x.objects[index].last_seq_cst > oldest)
		oldest = x.objects[index].last_seq_cst;
	return read_message(index, newest - choose(newest - oldest + 1), order);
}

void explore_store(const void *address, uint64_t now, uint64_t value, memory_order order)
{
	uint32_t index;

	await_turn(address, false);
	index = object_index(address, now);
	append_message(index, value, order, NULL);
}

/* The newest message, which is the only one that a read-modify-write may follow. */
static uint32_t newest_message(uint32_t index)
{
	return x.objects[index].n_messages - 1;
}

bool explore_exchange(const void *address, uint64_t now, uint64_t *expected, uint64_t value,
		      memory_order success, memory_order failure)
{
	uint32_t index, message;
	struct view carried;

	await_turn(address, false);
	index = object_index(address, now);
	message = newest_message(index);
	if (x.objects[index].messages[message].value != *expected) {
		*expected = read_message(index, message, failure);
		return false;
	}
	read_message(index, message, success);
	carried = x.objects[index].messages[message].view;
	append_message(index, value, success, &carried);
	return true;
}

uint64_t explore_fetch_or(const void *address, uint64_t now, uint64_t bits, memory_order order)
{
	uint32_t index, message;
	struct view carried;
	uint64_t before;

	await_turn(address, false);
	index = object_index(address, now);
	message = newest_message(index);
	before = read_message(index, message, order);
	carried = x.objects[index].messages[message].view;
	append_message(index, before | bits, order, &carried);
	return before;
}

/* ---- data races ---- */

static struct plain *plain_find(const void *address)
{
	for (uint32_t i = 0; i < x.n_plain; i++)
		if (x.plain[i].address == address)
			return &x.plain[i];
	limit(x.n_plain < MAX_PLAIN, "plain memory");
	x.plain[x.n_plain] = (struct plain){.address = address};
	return &x.plain[x.n_plain++];
}

static bool is_write_seen(const struct plain *plain, const struct view *view)
{
	return plain->write_clock == 0 || view->clock[plain->writer] >= plain->write_clock;
}

void explore_read(const void *memory)
{
	struct plain *plain = plain_find(memory);
	const struct view *view = &x.threads[x.current].view;

	if (!is_write_seen(plain, view))
		explore_fault("thread %u reads what thread %u writes meanwhile", x.current,
			      plain->writer);
	plain->read_clock[x.current] = view->clock[x.current];
}

void explore_write(const void *memory)
{
	struct plain *plain = plain_find(memory);
	const struct view *view = &x.threads[x.current].view;

	if (!is_write_seen(plain, view))
		explore_fault("threads %u and %u write the same memory", x.current, plain->writer);
	for (uint32_t i = 0; i < N_CLOCKS; i++)
		if (view->clock[i] < plain->read_clock[i])
			explore_fault("thread %u writes what thread %u still reads", x.current, i);
	plain->writer = x.current;
	plain->write_clock = view->clock[x.current];
}

/* ---- executions ---- */

static void thread_main(void)
{
	x.scenario->threads[x.current]();
	x.threads[x.current].is_done = true;
	setcontext(&x.main);
}

/* Run @thread to its next operation. */
static void resume(uint32_t thread)
{
	x.current = thread;
	swapcontext(&x.main, &x.threads[thread].context);
	x.current = INIT;
}

static void thread_start(uint32_t i)
{
	struct thread *thread = &x.threads[i];

	thread->view = x.threads[INIT].view;
	thread->view.clock[i] = 1;
	thread->is_done = false;
	getcontext(&thread->context);
	thread->context.uc_stack.ss_sp = thread->stack;
	thread->context.uc_stack.ss_size = STACK_BYTES;
	thread->context.uc_link = NULL;
	makecontext(&thread->context, thread_main, 0);
	resume(i);
}

static bool is_independent(const struct operation *a, const struct operation *b)
{
	return a->object != b->object || (a->is_load && b->is_load);
}

/*
 * Choose who goes on among those that are not asleep: a thread sleeps while its next operation
 * would only repeat an execution that an earlier choice has covered. Returns false when all
 * that could go on sleep.
 */
static bool step(uint32_t *asleep)
{
	uint32_t awake[EXPLORE_MAX_THREADS], n_awake = 0, taken, after = 0;
	const struct operation *operation;

	for (uint32_t i = 0; i < x.scenario->n_threads; i++)
		if (!x.threads[i].is_done && !(*asleep & 1u << i))
			awake[n_awake++] = i;
	if (n_awake == 0)
		return false;
	taken = choose(n_awake);
	for (uint32_t i = 0; i < taken; i++)
		*asleep |= 1u << awake[i];
	operation = &x.threads[awake[taken]].pending;
	for (uint32_t i = 0; i < x.scenario->n_threads; i++)
		if (*asleep & 1u << i && is_independent(&x.threads[i].pending, operation))
			after |= 1u << i;
	*asleep = after;
	resume(awake[taken]);
	return true;
}

static bool is_any_running(void)
{
	for (uint32_t i = 0; i < x.scenario->n_threads; i++)
		if (!x.threads[i].is_done)
			return true;
	return false;
}

/* Returns whether the execution came to its end. */
static bool execute(void)
{
	uint32_t asleep = 0;

	x.depth = 0;
	x.n_objects = 0;
	x.n_plain = 0;
	x.current = INIT;
	memset(&x.threads[INIT].view, 0, sizeof(struct view));
	x.threads[INIT].view.clock[INIT] = 1;
	x.scenario->setup();
	for (uint32_t i = 0; i < x.scenario->n_threads; i++)
		thread_start(i);
	while (is_any_running() && !x.is_failed)
		if (!step(&asleep))
			return false;
	for (uint32_t i = 0; i < x.scenario->n_threads; i++)
		join(&x.threads[INIT].view, &x.threads[i].view);
	if (!x.is_failed)
		x.scenario->finish();
	return true;
}

struct explore_result explore_run(const struct explore_scenario *scenario,
				  uint64_t limit_executions)
{
	struct explore_result result = {0};
	bool has_more;

	x.scenario = scenario;
	x.is_failed = false;
	x.fault[0] = '\0';
	x.n_choices = 0;
	for (uint32_t i = 0; i < scenario->n_threads; i++) {
		x.threads[i].stack = malloc(STACK_BYTES);
		limit(x.threads[i].stack != NULL, "memory");
	}
	do {
		*(execute() ? &result.n_executions : &result.n_pruned) += 1;
		has_more = advance();
	} while (has_more && !x.is_failed &&
		 result.n_executions + result.n_pruned < limit_executions);
	result.is_exhausted = !has_more;
	memcpy(result.fault, x.fault, sizeof(result.fault));
	for (uint32_t i = 0; i < scenario->n_threads; i++)
		free(x.threads[i].stack);
	return result;
}
