//! Classifies the functions of the kernel by their names.

use super::Part;

/// Prefixes of the names of kernel functions, separated by spaces, whose work is counted as that of their caller: small
/// helpers, uncontended locks, and the code that enables interrupts again.
const CALLERS: &str = "srso_ __x86_ retbleed_ _raw_ __raw_ rcu_ __rcu_ __fentry__ mutex_lock mutex_unlock \
    __mutex_ __local_bh _local_bh preempt_ __cond_resched pv_ kvm_ native_ ktime_ read_tsc \
    memset __memset refcount_ __rcu down_ up_ lock_ clear_bhb";

/// Prefixes of the names of kernel functions, separated by spaces, for each kind of work. An entry that begins with `*`
/// matches anywhere in a name. The first match decides.
const KERNEL: &[(Part, &str)] = &[
    (
        Part::Lock,
        "*queued_spin_lock_slowpath osq_ mutex_spin_on_owner mutex_optimistic_spin rwsem_spin \
         rwsem_optimistic_spin",
    ),
    (
        Part::Copy,
        "*copy_user *copy_to_user *copy_from_user *copy_to_iter *copy_from_iter *copy_page \
         *rep_movs *copyin *copyout memcpy __memcpy memmove __memmove *copy_datagram *copy_bits \
         process_vm_rw *csum_and_copy",
    ),
    (Part::Checksum, "*csum crc32 *checksum"),
    (
        Part::Allocation,
        "kmem_cache kmalloc __kmalloc kfree ___slab __slab slab_ alloc_skb __alloc_skb \
         *kmem_cache skb_release skb_free kfree_skb __kfree_skb napi_alloc sock_alloc_send \
         alloc_pages __alloc_pages __alloc_frozen get_page_from_freelist free_unref __free_pages \
         free_frozen __free_frozen rmqueue clear_page kvmalloc vmalloc asm_exc_page_fault \
         do_user_addr_fault handle_mm_fault __handle_mm_fault lru_ folio_ __folio put_page \
         mem_cgroup obj_cgroup try_charge __memcg *memcg get_obj_cgroup alloc_msg load_msg \
         free_msg anon_pipe_get_page anon_pipe_put_page __put_page skb_page_frag",
    ),
    (
        Part::WakeUp,
        "schedule __schedule io_schedule try_to_wake_up wake_up __wake_up wake_q ttwu_ \
         default_wake_function autoremove_wake woken_wake pollwake ep_poll ep_autoremove ep_send \
         finish_task_switch __switch_to switch_mm enqueue_ __enqueue dequeue_ __dequeue_ent pick_ \
         __pick_ select_task_rq select_idle *update_curr update_load update_rq *update_load_avg \
         set_next_ put_prev prepare_to_wait finish_wait add_wait_queue remove_wait_queue futex_ \
         __futex do_futex __x64_sys_futex get_futex hrtimer_ __hrtimer resched_ \
         *smp_call_function *send_IPI *_ipi sched_ __sched wait_woken sk_wait \
         unix_stream_data_wait sock_def_readable sock_def_write_space sock_def_wake do_poll \
         do_sys_poll psi_ place_entity avg_vruntime reweight vruntime *entity_ wakeup_preempt \
         check_preempt task_ migrate_ cpuidle tick_ nohz load_new_mm complete swake_up rwsem_wake \
         rwsem_down activate_task requeue balance_ newidle cpuacct perf_event_task_sched \
         __perf_event_task_sched ctx_sched visit_groups group_sched merge_sched event_sched \
         wait_for sysvec_reschedule asm_sysvec_reschedule sigsuspend do_sigtimedwait yield_",
    ),
    (
        Part::Protocol,
        "tcp_ __tcp ip_ __ip_ ip6 ipv4 inet __inet udp __udp unix_ __unix tipc_ __tipc sctp_ \
         mptcp __mptcp sock_ __sock sk_ __sk_ skb_ __skb skb consume_skb net_ __net netif __netif \
         dev_ __dev loopback_ process_backlog napi __napi pipe_ anon_pipe fifo_ mqueue_ do_mq \
         do_msg msg_ newseg ipc_ ipcget sem do_sem splice __splice do_splice vmsplice iov_iter \
         iter_ nf_ bpf_ neigh_ dst_ eth_ qdisc pfifo validate_xmit release_sock lock_sock \
         __lock_sock __release_sock vsock virtio_ eventfd_ io_ __io_ import_ubuf tun_ veth_ \
         bictcp cubictcp bbr_ fib_ scm_ __scm maybe_add_creds handle_softirqs __do_softirq \
         do_softirq shm pid_vnr wait_for_unix gup_ pin_user get_user_pages __get_user_pages \
         follow_page unpin_",
    ),
    (
        Part::SystemCall,
        "entry_SYSCALL syscall_ do_syscall_64 x64_sys __x64_sys __do_sys __se_sys ksys_ vfs_ \
         fdget fput __fget fget __fdget security_ apparmor_ selinux_ rw_verify_area new_sync_ \
         import_ sockfd_lookup exit_to_user switch_fpu restore_fpregs fpregs audit_ __audit \
         seccomp __seccomp do_writev do_readv do_iter __sys_ ___sys_ ____sys_ move_addr \
         copy_msghdr fsnotify __fsnotify inode_ touch_atime atime_ file_update_time file_accessed \
         current_time do_send_sig do_tkill signal_ get_signal arch_do_signal restore_sig",
    ),
];

/// The kind of work of a kernel function; `None` if it counts as that of its caller, or is unknown.
pub(super) fn part_of(symbol: &str) -> Option<Part> {
    // Parts that the compiler split off a function count as that function.
    let symbol = symbol.split('.').next().unwrap_or(symbol);
    for (part, patterns) in KERNEL {
        let fits = |pattern: &str| match pattern.strip_prefix('*') {
            Some(within) => symbol.contains(within),
            None => symbol.starts_with(pattern),
        };
        if patterns.split_ascii_whitespace().any(fits) {
            let callers = *part != Part::Lock && *part != Part::Copy;
            if callers && CALLERS.split_ascii_whitespace().any(|prefix| symbol.starts_with(prefix))
            {
                return None;
            }
            return Some(*part);
        }
    }
    None
}
